/**
 * The only module that knows koffi: some twenty system calls and the functions of libnftables, synchronous, with errno
 * translated into {@link KernelError}. It could be moved to another FFI by rewriting this folder.
 *
 * Owns: prototypes, errno, EINTR. Refuses to know: what the descriptors and bytes mean.
 *
 * ```ts
 * const fd = socket(C.AF_NETLINK, C.SOCK_RAW, 0);
 * send(fd, request);
 * const length = recv(fd, buffer);
 * close(fd);
 * ```
 */
export {
  bind,
  C,
  close,
  connect,
  duplicate,
  eventfd,
  getsockname,
  getsockopt,
  ioctl,
  ioctlValue,
  listen,
  mount,
  open,
  pollReadable,
  read,
  recv,
  recvFrom,
  type SendOptions,
  send,
  sendAsync,
  setns,
  setsockopt,
  socket,
  tryLock,
  unmount,
  unshare,
  write,
} from "./calls.ts";
export { type Libnftables, libnftables, type NftHandle } from "./nftables.ts";
export { decodeSockaddr, type Endpoint, encodeSockaddr } from "./sockaddr.ts";
