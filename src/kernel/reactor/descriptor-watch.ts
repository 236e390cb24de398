import { KernelError } from "#kernel/errors";
import { close, EPOLL } from "#kernel/ffi";
import { type Reactor, reactor, type Watched } from "./reactor.ts";

/** Interval at which a descriptor is checked if the event loop cannot watch it, in milliseconds. */
const POLL_MS = 200;

/**
 * Watches a descriptor of any kind in the event loop, without a thread of its own and without keeping this one alive. Owns the descriptor
 * as soon as the constructor is called, also if the constructor throws. On a runtime without streams over epoll the descriptor is checked
 * by a timer.
 */
export class DescriptorWatch implements Watched, Disposable {
  readonly fd: number;
  readonly isBackground = true;
  readonly #reactor: Reactor | undefined;
  readonly #onReadable: () => void;
  readonly #timer: NodeJS.Timeout | undefined;
  #isClosed = false;

  /**
   * `onReadable` is called in each tick while the descriptor is readable; with `isPolled`, every `pollMs`, by default 200 ms, whether it is readable or not. It
   * must not throw. Default of `isPolled`: whether the event loop cannot watch descriptors. Throws {@link KernelError}.
   */
  constructor(
    fd: number,
    onReadable: () => void,
    options: { readonly isPolled?: boolean; readonly pollMs?: number } = {},
  ) {
    this.fd = fd;
    this.#onReadable = onReadable;
    this.#reactor = options.isPolled === true ? undefined : reactorIfSupported(fd);
    if (this.#reactor === undefined) this.#timer = setInterval(onReadable, options.pollMs ?? POLL_MS).unref();
    else this.#reactor.add(this, EPOLL.in);
  }

  onReady(): void {
    this.#onReadable();
  }

  abandon(): void {
    this[Symbol.dispose]();
  }

  /** Ends the watch and closes the descriptor. */
  [Symbol.dispose](): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearInterval(this.#timer);
    if (this.#reactor === undefined) close(this.fd);
    else this.#reactor.remove(this);
  }
}

/** `undefined` if Node lacks the exports that the reactor needs. For any other error, closes the descriptor and throws the error. */
function reactorIfSupported(fd: number): Reactor | undefined {
  try {
    return reactor();
  } catch (error) {
    if (error instanceof KernelError && error.code === "unsupported") return undefined;
    close(fd);
    throw error;
  }
}
