import type { Clock } from "#base/clock";
import { describeError, type ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";

/** The interval at which a server looks whether another one waits to take over, in milliseconds. Without one that costs a look at a file. */
const LOOK_MS = 200;

export interface ProbeTurnsDeps {
  /** Listens on the ports for probes, until disposed. Rejects with an `ExpectedError`. */
  readonly open: () => Promise<AsyncDisposable>;
  readonly succession: {
    /** True while this server itself waits for an earlier one. */
    readonly isBehind: boolean;
    /** Resolves to true while another server waits behind this one. */
    isWaiting(): Promise<boolean>;
  };
  readonly log: Logger;
  readonly clock: Clock;
  /** Receives an error that is no `ExpectedError`. It should end the program. */
  readonly onBug: (error: unknown) => void;
}

/**
 * The ports for probes of servers that follow one another (docs/spec/tunnel.md#11.1). Of two processes that share a port, either may answer a probe, and nothing in the probe says which of
 * the pods it is for. So the earlier server leaves the ports while another one waits behind it, and has them again when that one is gone.
 */
export class ProbeTurns implements AsyncDisposable {
  readonly #deps: ProbeTurnsDeps;
  readonly #stop = new AbortController();
  #open: AsyncDisposable | undefined;
  #looks: Promise<void> = Promise.resolve();

  private constructor(deps: ProbeTurnsDeps) {
    this.#deps = deps;
  }

  /** Listens, and begins to look for followers. Rejects as `open` does. */
  static async open(deps: ProbeTurnsDeps): Promise<ProbeTurns> {
    const turns = new ProbeTurns(deps);
    turns.#open = await deps.open();
    turns.#looks = turns.#look().catch(deps.onBug);
    return turns;
  }

  /** Leaves the ports for good. Idempotent. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#looks;
    await this.#close();
  }

  async #look(): Promise<void> {
    const { succession, clock, log } = this.#deps;
    const onFailure = (error: ExpectedError): void =>
      log.debug("it is not known who has the ports of probes", { reason: describeError(error) });
    await repeat(
      async () => {
        // The one that waits is this server itself.
        if (succession.isBehind) return;
        await this.#take(!(await succession.isWaiting()));
      },
      { signal: this.#stop.signal, clock, everyMs: LOOK_MS, onFailure },
    );
  }

  async #take(isMine: boolean): Promise<void> {
    if (isMine === (this.#open !== undefined) || this.#stop.signal.aborted) return;
    const { open, log } = this.#deps;
    if (isMine) {
      this.#open = await open();
      log.info("the server that waited is gone: probes are answered here again");
    } else {
      await this.#close();
      log.info("another server waits to take over: it alone answers probes now");
    }
  }

  async #close(): Promise<void> {
    const open = this.#open;
    this.#open = undefined;
    await open?.[Symbol.asyncDispose]();
  }
}
