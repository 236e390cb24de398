/** Deferred work, each key once. It runs in later ticks, so that it never delays a commit. */
export class DeferredQueue {
  readonly #keys = new Map<string, () => Promise<void>>();
  readonly #onError: (error: unknown) => void;
  #running = false;
  #stopped = false;
  #idle: (() => void)[] = [];

  constructor(onError: (error: unknown) => void) {
    this.#onError = onError;
  }

  add(key: string, work: () => Promise<void>): void {
    if (this.#stopped) return;
    this.#keys.set(key, work);
    if (this.#running) return;
    this.#running = true;
    setImmediate(() => void this.#run());
  }

  /** Resolves when no work waits. */
  async idle(): Promise<void> {
    if (this.#running) await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  stop(): void {
    this.#stopped = true;
    this.#keys.clear();
  }

  async #run(): Promise<void> {
    for (let next = this.#keys.entries().next(); next.done !== true; next = this.#keys.entries().next()) {
      const [key, work] = next.value;
      this.#keys.delete(key);
      try {
        await work();
      } catch (error) {
        this.#onError(error);
      }
    }
    this.#running = false;
    for (const resolve of this.#idle.splice(0)) resolve();
  }
}
