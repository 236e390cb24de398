/** Calls a handler at each SIGHUP. After disposal, SIGHUP ends the process again, which is Node.js's default. */
export class SighupHandler implements Disposable {
  #handler: (() => void) | undefined;
  #missed = false;
  readonly #onSignal = (): void => {
    if (this.#handler === undefined) this.#missed = true;
    else this.#handler();
  };

  /** Catches SIGHUP from now on. Start-up may take long, so a SIGHUP that arrives earlier than {@link handle} is kept until that call. */
  constructor() {
    process.on("SIGHUP", this.#onSignal);
  }

  /** Sets the handler. Calls the handler at once if a SIGHUP has arrived already. */
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
