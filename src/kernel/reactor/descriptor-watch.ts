import { EPOLL } from "#kernel/ffi";
import { type Reactor, reactorFor, type Watched } from "./reactor.ts";

/**
 * Watches a descriptor of any kind in the event loop, without a thread of its own and without keeping this one alive. Owns the descriptor as
 * soon as the constructor is called, also when that throws.
 */
export class DescriptorWatch implements Watched, Disposable {
  readonly fd: number;
  readonly isBackground = true;
  readonly #reactor: Reactor;
  readonly #onReadable: () => void;

  /** `onReadable` is called in each tick while there is something to read; it must not throw. Throws {@link KernelError}. */
  constructor(fd: number, onReadable: () => void) {
    this.fd = fd;
    this.#onReadable = onReadable;
    this.#reactor = reactorFor(fd);
    this.#reactor.add(this, EPOLL.in);
  }

  onReady(): void {
    this.#onReadable();
  }

  abandon(): void {
    this[Symbol.dispose]();
  }

  /** Ends the watch and closes the descriptor. */
  [Symbol.dispose](): void {
    this.#reactor.remove(this);
  }
}
