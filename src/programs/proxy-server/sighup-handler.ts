/** Calls a handler at each SIGHUP. After disposal Node's default applies again, which ends the process. */
export class SighupHandler implements Disposable {
  #handler: (() => void) | undefined;
  #missed = false;
  readonly #onSignal = (): void => {
    if (this.#handler === undefined) this.#missed = true;
    else this.#handler();
  };

  /** Catches the signal from now on. A signal before {@link handle} is kept until then, because start-up may take long. */
  constructor() {
    process.on("SIGHUP", this.#onSignal);
  }

  /** Sets the handler; calls it at once if a signal has come before. */
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
