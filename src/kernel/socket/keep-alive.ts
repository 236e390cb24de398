import { C, setsockopt } from "#kernel/ffi";

/** include/uapi/asm-generic/socket.h, include/uapi/linux/in.h and tcp.h. */
const SO_KEEPALIVE = 9;
const IPPROTO_TCP = 6;
const TCP_KEEPIDLE = 4;
const TCP_KEEPINTVL = 5;
const TCP_KEEPCNT = 6;
const TCP_USER_TIMEOUT = 18;

/**
 * Has the kernel probe the peer of a TCP socket after `probeMs` milliseconds without a byte of it, and again after as long. The connection ends
 * with ETIMEDOUT when the peer has acknowledged nothing for `timeoutMs`, neither probes nor bytes, or has taken no byte for as long though
 * some wait for it. Both are at least 1000; `probeMs` is rounded to seconds. Throws {@link KernelError}.
 */
export function keepTcpAlive(fd: number, options: { readonly probeMs: number; readonly timeoutMs: number }): void {
  const { probeMs, timeoutMs } = options;
  const seconds = Math.max(1, Math.round(probeMs / 1000));
  setsockopt(fd, C.SOL_SOCKET, SO_KEEPALIVE, 1);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  // TCP_USER_TIMEOUT decides; the count is the same time in probes.
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, Math.max(1, Math.ceil(timeoutMs / (seconds * 1000)) - 1));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, timeoutMs);
}
