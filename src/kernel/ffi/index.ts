/**
 * The only module that knows koffi: system calls, the functions of libnftables and the watch of a descriptor by the event loop, with errno
 * translated into {@link KernelError}. It could be moved to another FFI by rewriting this folder.
 *
 * Owns: prototypes, errno, EINTR. Does not know: the meaning of descriptors and bytes.
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
  duplicate,
  getsockname,
  getsockopt,
  getsockoptBytes,
  ioctl,
  ioctlValue,
  listen,
  mount,
  open,
  pollReadable,
  recv,
  recvAsync,
  recvFrom,
  releaseFreeMemory,
  send,
  sendAsync,
  setns,
  setsockopt,
  socket,
  tryLock,
  unmount,
  unshare,
} from "./calls.ts";
export { dropFromBoundingSet, effectiveCapabilities, setCapabilities } from "./capabilities.ts";
export { type LoopWatch, watchReadable } from "./event-loop.ts";
export { libnftables, type NftHandle } from "./nftables.ts";
export { killAtParentDeath } from "./parent-death.ts";
export { decodeSockaddr, type Endpoint, encodeSockaddr, encodeUnixPath } from "./sockaddr.ts";
export {
  acceptFrom,
  beginConnect,
  EPOLL,
  EPOLL_CTL,
  EpollEvents,
  epollControl,
  epollCreate,
  epollPoll,
  receiveBytes,
  sendBytes,
  shutdownWrite,
} from "./streams.ts";
