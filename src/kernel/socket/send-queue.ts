import { ioctl } from "#kernel/ffi";

/** SIOCOUTQ (include/uapi/linux/sockios.h), which is TIOCOUTQ. */
const SIOCOUTQ = 0x5411;

/**
 * What is in the send queue of a socket, bytes with the kernel's own. On a UNIX socket that is what the peer has not read: 0 says that
 * it has read everything. On a TCP socket it is what the peer's kernel has not confirmed. Throws {@link KernelError}.
 */
export function sendQueueBytes(fd: number): number {
  const value = new Int32Array(1);
  ioctl(fd, SIOCOUTQ, new Uint8Array(value.buffer), `ask for the send queue of descriptor ${fd}`);
  return value[0] ?? 0;
}
