import { KernelError } from "#kernel/errors";
import { C } from "./calls.ts";
import { isMoot } from "./errno.ts";
import { lastErrno, libc, type NativeFunction } from "./library.ts";

/** include/uapi/asm-generic/errno-base.h and errno.h. */
const [EINTR, ECONNRESET, EISCONN, EALREADY, EINPROGRESS] = [4, 104, 106, 114, 115];
/** include/linux/socket.h. */
const SHUT_WR = 1;

/**
 * The result of a call. Frequent calls return a negated errno, so that expected failures need no error object. EINTR must be tried again.
 */
function outcome(result: number | bigint): number {
  const number = Number(result);
  return number >= 0 ? number : -lastErrno();
}

function raw(native: NativeFunction, ...args: readonly unknown[]): number {
  for (;;) {
    const result = outcome(native(...args));
    if (result !== -EINTR) return result;
  }
}

function isRepeated(result: number, tries: number): boolean {
  return result < 0 && isMoot(-result, tries);
}

/**
 * recv(2) of a stream: the number of bytes, 0 at the end of the stream, or a negated errno. The call that reports a loss takes the socket's error
 * away: where its errno was another call's, the next one would tell an end. A loss is told then, since an end may not be taken for complete.
 */
export function receiveBytes(fd: number, into: Uint8Array): number {
  let hasFailed = false;
  for (let tries = 1; ; tries += 1) {
    const result = outcome(libc().recv(fd, into, into.length, C.MSG_DONTWAIT));
    if (result === 0 && hasFailed) return -ECONNRESET;
    if (!isRepeated(result, tries)) return result;
    hasFailed ||= result !== -EINTR;
  }
}

/**
 * send(2) of the first `length` bytes to a stream, without SIGPIPE: how many bytes the kernel has taken, or a negated errno. The kernel
 * copies the bytes before the call returns.
 */
export function sendBytes(fd: number, data: Uint8Array, length = data.length): number {
  for (let tries = 1; ; tries += 1) {
    const result = outcome(libc().send(fd, data, length, C.MSG_DONTWAIT | C.MSG_NOSIGNAL));
    if (!isRepeated(result, tries)) return result;
  }
}

const addressLength = new Uint32Array(1);

/**
 * accept4(2), non-blocking and close-on-exec: the descriptor, or a negated errno. `address` takes the peer's sockaddr, 28 bytes; null for
 * UNIX sockets, whose peers have none.
 */
export function acceptFrom(fd: number, address: Uint8Array | null): number {
  const lengthOf = address === null ? null : addressLength;
  for (let tries = 1; ; tries += 1) {
    addressLength[0] = address?.length ?? 0;
    const result = raw(libc().accept4, fd, address, lengthOf, C.SOCK_NONBLOCK | C.SOCK_CLOEXEC);
    if (!isRepeated(result, tries)) return result;
  }
}

/** connect(2) of a non-blocking socket: 0, or a negated errno (usually EINPROGRESS). A repeated call returns the same. */
export function beginConnect(fd: number, address: Uint8Array): number {
  for (let tries = 1; ; tries += 1) {
    const result = raw(libc().connect, fd, address, address.length);
    if (result === -EALREADY) return -EINPROGRESS;
    if (result === -EISCONN) return 0;
    if (!isRepeated(result, tries)) return result;
  }
}

/** shutdown(2) of the writing half: 0, or a negated errno. */
export function shutdownWrite(fd: number): number {
  return raw(libc().shutdown, fd, SHUT_WR);
}

/** An epoll instance, close-on-exec. Throws {@link KernelError}. */
export function epollCreate(): number {
  const fd = raw(libc().epoll_create1, C.O_CLOEXEC);
  if (fd < 0) throw KernelError.fromErrno(-fd, "make an epoll instance");
  return fd;
}

/** Operations of epoll_ctl(2). */
export const EPOLL_CTL = { add: 1, remove: 2, modify: 3 } as const;
/** Bits of epoll events (include/uapi/linux/eventpoll.h). */
export const EPOLL = {
  in: 0x001,
  priority: 0x002,
  out: 0x004,
  error: 0x008,
  hangUp: 0x010,
  readHangUp: 0x2000,
  edgeTriggered: 0x80000000,
} as const;

/** `struct epoll_event` is packed only on x86-64. */
const EVENT_WORDS = process.arch === "x64" ? 3 : 4;
const DATA_WORD = EVENT_WORDS - 2;
const oneEvent = new Uint32Array(EVENT_WORDS);

/** epoll_ctl(2); `data` are two 32-bit numbers that come back with events. Throws {@link KernelError}. */
export function epollControl(
  epoll: number,
  operation: (typeof EPOLL_CTL)[keyof typeof EPOLL_CTL],
  fd: number,
  events: number,
  data: readonly [number, number],
): void {
  oneEvent[0] = events;
  oneEvent[DATA_WORD] = data[0];
  oneEvent[DATA_WORD + 1] = data[1];
  const result = raw(libc().epoll_ctl, epoll, operation, fd, oneEvent);
  if (result < 0) throw KernelError.fromErrno(-result, `watch descriptor ${fd}`);
}

/** The events that {@link epollPoll} writes. */
export class EpollEvents {
  readonly words: Uint32Array;
  readonly capacity: number;

  constructor(capacity: number) {
    this.capacity = capacity;
    this.words = new Uint32Array(EVENT_WORDS * capacity);
  }

  /** The bits of the event at a place. */
  bits(at: number): number {
    return this.words[at * EVENT_WORDS] ?? 0;
  }

  /** A half of the event's data, as it was passed to {@link epollControl}. */
  data(at: number, half: 0 | 1): number {
    return this.words[at * EVENT_WORDS + DATA_WORD + half] ?? 0;
  }
}

/** epoll_wait(2) that does not wait: returns the number of events. Throws {@link KernelError}. */
export function epollPoll(epoll: number, events: EpollEvents): number {
  const count = raw(libc().epoll_wait, epoll, events.words, events.capacity, 0);
  if (count < 0) throw KernelError.fromErrno(-count, "read the events of an epoll instance");
  return count;
}
