import { ioctl } from "#kernel/ffi";

/** SIOCOUTQ (include/uapi/linux/sockios.h), which is TIOCOUTQ. */
const SIOCOUTQ = 0x5411;

/**
 * Length of a socket's send queue, bytes, with the kernel's overhead. On a UNIX socket the queue has the bytes that the peer has not read;
 * 0: it has read all bytes. On a TCP socket it has the bytes that the peer's kernel has not acknowledged. Throws {@link KernelError}.
 */
export function sendQueueBytes(fd: number): number {
  const value = new Int32Array(1);
  ioctl(fd, SIOCOUTQ, new Uint8Array(value.buffer), `read the send queue of descriptor ${fd}`);
  return value[0] ?? 0;
}
