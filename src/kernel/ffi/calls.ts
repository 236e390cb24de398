import { KernelError } from "#kernel/errors";
import { isMoot } from "./errno.ts";
import { lastErrno, libc, type NativeFunction } from "./library.ts";

const EINTR = 4;
const EWOULDBLOCK = 11;
const EAGAIN = 11;
const ENOBUFS = 105;

/** Open flags and other numbers of x86-64 and arm64 Linux (include/uapi). */
export const C = {
  AF_UNIX: 1,
  AF_INET: 2,
  AF_INET6: 10,
  AF_NETLINK: 16,
  AF_PACKET: 17,
  SOCK_STREAM: 1,
  SOCK_DGRAM: 2,
  SOCK_RAW: 3,
  SOCK_NONBLOCK: 0o4000,
  SOCK_CLOEXEC: 0o2000000,
  SOL_SOCKET: 1,
  SO_REUSEADDR: 2,
  SO_SNDBUF: 7,
  SO_RCVBUF: 8,
  SO_RCVTIMEO: 20,
  SO_BINDTODEVICE: 25,
  SO_SNDBUFFORCE: 32,
  SO_RCVBUFFORCE: 33,
  SO_MARK: 36,
  MSG_PEEK: 2,
  MSG_TRUNC: 0x20,
  MSG_DONTWAIT: 0x40,
  MSG_ERRQUEUE: 0x2000,
  MSG_NOSIGNAL: 0x4000,
  O_RDONLY: 0,
  O_WRONLY: 1,
  O_RDWR: 2,
  O_CREAT: 0o100,
  O_NONBLOCK: 0o4000,
  O_EXCL: 0o200,
  O_CLOEXEC: 0o2000000,
  F_DUPFD_CLOEXEC: 1030,
  CLONE_NEWNET: 0x40000000,
  MS_BIND: 4096,
  MS_REC: 16384,
  MS_SHARED: 1 << 20,
  MNT_DETACH: 2,
  POLLIN: 1,
} as const;

/** The attempt, for the error. Frequent calls pass a function, so that the text is made only for a failure. */
type What = string | (() => string);

function call(native: NativeFunction, what: What, ...args: readonly unknown[]): number {
  for (;;) {
    const result = Number(native(...args));
    if (result >= 0) return result;
    const errno = lastErrno();
    if (errno !== EINTR) throw KernelError.fromErrno(errno, typeof what === "string" ? what : what());
  }
}

/** socket(2), close-on-exec. Returns the descriptor, which the caller closes. Throws {@link KernelError}. */
export function socket(domain: number, type: number, protocol: number): number {
  return call(
    libc().socket,
    () => `make a socket (domain ${domain}, type ${type}, protocol ${protocol})`,
    domain,
    type | C.SOCK_CLOEXEC,
    protocol,
  );
}

/** bind(2) to an encoded sockaddr. `what` names the address in the error. */
export function bind(fd: number, address: Uint8Array, what: What = "bind a socket"): void {
  call(libc().bind, what, fd, address, address.length);
}

/** connect(2) to an encoded sockaddr. */
export function connect(fd: number, address: Uint8Array, what = "connect a socket"): void {
  call(libc().connect, what, fd, address, address.length);
}

/** listen(2). */
export function listen(fd: number, backlog: number, what = "listen"): void {
  call(libc().listen, what, fd, backlog);
}

/** The local address of a socket as an encoded sockaddr. */
export function getsockname(fd: number): Uint8Array {
  const address = new Uint8Array(128);
  const length = new Uint32Array([address.length]);
  call(libc().getsockname, "read a socket's own address", fd, address, length);
  return address.subarray(0, length[0]);
}

/** send(2) or sendto(2). Returns false when the socket's buffer is full (EAGAIN); throws for any other failure. */
export function send(fd: number, data: Uint8Array, options: SendOptions = {}): boolean {
  const { flags = 0, address = null, what = "send" } = options;
  for (;;) {
    if (Number(libc().sendto(fd, data, data.length, flags, address, address?.length ?? 0)) >= 0) return true;
    const errno = lastErrno();
    if (errno === EAGAIN) return false;
    if (errno !== EINTR) throw KernelError.fromErrno(errno, what);
  }
}

/** Options of {@link send}. */
export interface SendOptions {
  readonly flags?: number;
  /** An encoded sockaddr; the connected peer when absent. */
  readonly address?: Uint8Array;
  /** The request, for the error. */
  readonly what?: string;
}

/**
 * Sends on a thread of the pool, for a request on which the kernel works long before `send` returns. The thread is in
 * the namespace of the process; the socket stays in its own. Rejects with {@link KernelError} `failed`: the errno of
 * the pool's thread cannot be read.
 */
export function sendAsync(fd: number, data: Uint8Array, what: string): Promise<void> {
  return new Promise((resolve, reject) => {
    libc().sendto.async(fd, data, data.length, 0, null, 0, (error: unknown, sent: number | bigint) => {
      if (error !== null && error !== undefined) reject(error);
      else if (Number(sent) < 0) reject(new KernelError("failed", `Cannot ${what}: the request could not be sent`));
      else resolve();
    });
  });
}

/**
 * recv(2) with the true length of a datagram (MSG_TRUNC): more than the buffer means that it was cut. `undefined` if no datagram is queued
 * (non-blocking, or the receive time-out passed). A call whose errno was another call's is repeated. It may have told that events were dropped:
 * with `isLossReported` it counts as ENOBUFS.
 */
export function recv(
  fd: number,
  into: Uint8Array,
  flags = 0,
  what = "receive",
  options: { readonly isLossReported?: boolean } = {},
): number | undefined {
  for (let tries = 1; ; tries += 1) {
    const length = Number(libc().recvfrom(fd, into, into.length, flags | C.MSG_TRUNC, null, null));
    if (length >= 0) return length;
    const errno = lastErrno();
    if (errno === EAGAIN) return undefined;
    if (options.isLossReported === true && errno !== EINTR && isMoot(errno, tries))
      throw KernelError.fromErrno(ENOBUFS, what);
    if (!isMoot(errno, tries)) throw KernelError.fromErrno(errno, what);
  }
}

/**
 * Like {@link recv} without flags, on a thread of the pool, for an answer on which the kernel works long. Rejects with {@link KernelError} `failed`, also
 * if nothing came within the receive time-out: the errno of the pool's thread cannot be read. `into` is in use until then.
 */
export function recvAsync(fd: number, into: Uint8Array, what: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const done = (error: unknown, length: number | bigint): void => {
      if (error !== null && error !== undefined) reject(error);
      else if (Number(length) < 0)
        reject(new KernelError("failed", `Cannot ${what}: the answer could not be received`));
      else resolve(Number(length));
    };
    libc().recvfrom.async(fd, into, into.length, C.MSG_TRUNC, null, null, done);
  });
}

/** Like {@link recv}, with the sender as an encoded sockaddr. */
export function recvFrom(fd: number, into: Uint8Array, flags = 0): { length: number; from: Uint8Array } | undefined {
  const address = new Uint8Array(128);
  const addressLength = new Uint32Array([address.length]);
  for (let tries = 1; ; tries += 1) {
    const length = Number(libc().recvfrom(fd, into, into.length, flags | C.MSG_TRUNC, address, addressLength));
    if (length >= 0) return { length, from: address.subarray(0, addressLength[0]) };
    const errno = lastErrno();
    if (errno === EAGAIN) return undefined;
    if (!isMoot(errno, tries)) throw KernelError.fromErrno(errno, "receive");
  }
}

/** poll(2) for readability. Returns the descriptors that are readable or in error; empty after `timeoutMs` (-1: waits without a limit). */
export function pollReadable(fds: readonly number[], timeoutMs: number): number[] {
  const set = new DataView(new ArrayBuffer(fds.length * 8)); // struct pollfd: int fd; short events; short revents
  for (const [at, fd] of fds.entries()) {
    set.setInt32(at * 8, fd, true);
    set.setInt16(at * 8 + 4, C.POLLIN, true);
  }
  call(libc().poll, "poll descriptors", new Uint8Array(set.buffer), fds.length, timeoutMs);
  return fds.filter((_, at) => set.getInt16(at * 8 + 6, true) !== 0);
}

const oneNumber = new Int32Array(1);
const itsBytes = new Uint8Array(oneNumber.buffer);

/** setsockopt(2) with a 32-bit number, or bytes. */
export function setsockopt(fd: number, level: number, option: number, value: number | Uint8Array, what?: string): void {
  if (typeof value === "number") oneNumber[0] = value;
  const bytes = typeof value === "number" ? itsBytes : value;
  call(
    libc().setsockopt,
    what ?? (() => `set socket option ${level}/${option}`),
    fd,
    level,
    option,
    bytes,
    bytes.length,
  );
}

/** getsockopt(2) of a 32-bit number. */
export function getsockopt(fd: number, level: number, option: number): number {
  const value = new Int32Array(1);
  call(libc().getsockopt, `get socket option ${level}/${option}`, fd, level, option, value, new Uint32Array([4]));
  return value[0] ?? 0;
}

const optionLength = new Uint32Array(1);

/** getsockopt(2) of a structure: how many bytes of it the kernel has written. */
export function getsockoptBytes(fd: number, level: number, option: number, into: Uint8Array): number {
  optionLength[0] = into.length;
  call(libc().getsockopt, () => `get socket option ${level}/${option}`, fd, level, option, into, optionLength);
  return optionLength[0] ?? 0;
}

/** open(2), close-on-exec; `mode` is used only with O_CREAT. */
export function open(path: string, flags: number, mode = 0o600): number {
  return call(libc().open, `open ${path}`, path, flags | C.O_CLOEXEC, mode);
}

/** close(2). A failure is thrown: it means that this module did not own the descriptor. */
export function close(fd: number): void {
  // This does not use `call`: on Linux the descriptor is closed even after EINTR, and a second close could close a new one.
  if (libc().close(fd) < 0 && lastErrno() !== EINTR) throw KernelError.fromErrno(lastErrno(), `close descriptor ${fd}`);
}

/** flock(2) with LOCK_EX | LOCK_NB. False when another open file holds the lock. */
export function tryLock(fd: number): boolean {
  if (libc().flock(fd, 2 | 4) === 0) return true;
  const errno = lastErrno();
  if (errno === EWOULDBLOCK) return false;
  throw KernelError.fromErrno(errno, `lock descriptor ${fd}`);
}

/** A second descriptor for the same open file, close-on-exec. */
export function duplicate(fd: number): number {
  return call(libc().fcntl, `duplicate descriptor ${fd}`, fd, C.F_DUPFD_CLOEXEC, 0);
}

/** ioctl(2) with a pointer argument, which the kernel may write to. */
export function ioctl(fd: number, request: number, argument: Uint8Array | null, what: string): number {
  return call(libc().ioctl, what, fd, request, argument);
}

/** ioctl(2) whose third argument is a number, passed in the pointer's place. */
export function ioctlValue(fd: number, request: number, argument: number, what: string): number {
  return call(libc().ioctl, what, fd, request, BigInt(argument));
}

/** setns(2): moves only the calling thread. */
export function setns(fd: number, type: number): void {
  call(libc().setns, `enter the namespace of descriptor ${fd}`, fd, type);
}

/** unshare(2) of the calling thread. */
export function unshare(flags: number): void {
  call(libc().unshare, `unshare (flags 0x${flags.toString(16)})`, flags);
}

/** mount(2). */
export function mount(source: string, target: string, type: string, flags: number): void {
  call(libc().mount, `mount ${source} on ${target}`, source, target, type, flags, null);
}

/** umount2(2). */
export function unmount(target: string, flags: number): void {
  call(libc().umount2, `unmount ${target}`, target, flags);
}

/** read(2); returns the number of bytes. Waits if the descriptor is blocking and has no bytes. */
export function read(fd: number, into: Uint8Array, what = "read"): number {
  return Number(call(libc().read, what, fd, into, into.length));
}

/** write(2). Throws {@link KernelError} unless all bytes were written. */
export function write(fd: number, data: Uint8Array, what = "write"): void {
  call(libc().write, what, fd, data, data.length);
}

/** malloc_trim(3): returns free memory of all arenas to the kernel. False when there was none. Blocks the thread for some milliseconds. */
export function releaseFreeMemory(): boolean {
  return libc().malloc_trim(0) === 1;
}
