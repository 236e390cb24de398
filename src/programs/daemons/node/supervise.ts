import { Backoff, sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";

/** After a run of at least this time, milliseconds, the pause before the next run is the shortest one. */
const STEADY_MS = 60_000;

/** One part of the process. It is run again whenever it ends. */
export interface SupervisedPart {
  readonly name: string;
  /** Runs the part once. Resolves with an exit code. It must release all its resources, also if it fails. */
  readonly run: (signal: AbortSignal) => Promise<number>;
}

/**
 * Runs a part until the signal aborts; resolves with the exit code of its last run. A run that ends by itself, or fails, is followed by
 * another run after a pause of 0.5 s, doubling to 30 s; the other parts continue. An error that is not an `ExpectedError` is a bug: it is
 * logged with its stack, and the part runs again.
 */
export async function supervise(
  part: SupervisedPart,
  deps: {
    readonly health: HealthPart;
    readonly log: Logger;
    readonly clock: Clock;
    /** Called before each run except the first. */
    readonly onRestart: () => void;
  },
  options: { readonly signal: AbortSignal },
): Promise<number> {
  const { health, log, clock } = deps;
  const { signal } = options;
  const backoff = new Backoff({ initialMs: 500, maxMs: 30_000 });
  for (;;) {
    const startedMs = clock.monotonic();
    health.ok("running");
    const why = await runOnce(part, signal);
    if (signal.aborted) return why.code;
    if (clock.monotonic() - startedMs >= STEADY_MS) backoff.reset();
    const retryInMs = Math.round(backoff.next());
    health.degraded(why.message);
    if (why.bug !== undefined)
      log.error("a part of this process failed because of a bug", { part: part.name, error: why.bug, retryInMs });
    else log.warn("a part of this process ended", { part: part.name, why: why.message, retryInMs });
    await sleep(retryInMs, { signal, clock }).catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
    if (signal.aborted) return why.code;
    deps.onRestart();
  }
}

async function runOnce(
  part: SupervisedPart,
  signal: AbortSignal,
): Promise<{ readonly code: number; readonly message: string; readonly bug?: string }> {
  try {
    const code = await part.run(signal);
    return { code, message: `ended with exit code ${code}` };
  } catch (error) {
    const message = describeError(error);
    if (error instanceof ExpectedError || signal.aborted) return { code: 1, message };
    return { code: 1, message, bug: error instanceof Error ? (error.stack ?? message) : message };
  }
}
