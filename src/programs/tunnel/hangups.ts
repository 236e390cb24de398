/** Does something at each SIGHUP. Disposed, it leaves the signal to Node, which ends the process. */
export class Hangups implements Disposable {
  #handler: (() => void) | undefined;
  #missed = false;
  readonly #onSignal = (): void => {
    if (this.#handler === undefined) this.#missed = true;
    else this.#handler();
  };

  /** Begins to catch the signal. One that comes before there is a handler waits for it: start-up may take long. */
  constructor() {
    process.on("SIGHUP", this.#onSignal);
  }

  /** From now on `handler` is called; at once where the signal has come before. */
  handle(handler: () => void): void {
    this.#handler = handler;
    if (!this.#missed) return;
    this.#missed = false;
    handler();
  }

  [Symbol.dispose](): void {
    process.off("SIGHUP", this.#onSignal);
  }
}
