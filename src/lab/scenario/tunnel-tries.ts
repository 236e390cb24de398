import { Semaphore } from "#base/async";
import { describeError } from "#base/errors";
import { InsideError } from "#lab/inside";
import type { TunnelTries } from "./tunnel-report.ts";

/** Maximum number of tries at the same time. */
const AT_ONCE = 32;

/** One try. */
export interface Try {
  /** `FROM -> TO`. */
  readonly name: string;
  /** Resolves after the right answer; rejects with `InsideError`. */
  readonly run: () => Promise<void>;
}

/** Runs all tries, several at the same time. */
export async function tryAll(tries: readonly Try[]): Promise<TunnelTries> {
  const gate = new Semaphore(AT_ONCE);
  const outcomes = await Promise.all(
    tries.map(async ({ name, run }) => {
      const failure = await gate.run(() => failureOf(run));
      return failure === undefined ? undefined : `${name}: ${failure}`;
    }),
  );
  const failures = outcomes.filter((outcome) => outcome !== undefined);
  return { tried: tries.length, answered: tries.length - failures.length, failures };
}

async function failureOf(run: () => Promise<void>): Promise<string | undefined> {
  try {
    await run();
    return undefined;
  } catch (error) {
    if (!(error instanceof InsideError)) throw error;
    return describeError(error);
  }
}
