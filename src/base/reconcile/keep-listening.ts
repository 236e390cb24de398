import { type RepeatOptions, repeat } from "./repeat.ts";

export interface KeepListeningOptions extends RepeatOptions {
  /** Returns true while the listener accepts clients at its address. */
  readonly isListening: () => boolean;
  /**
   * Takes the address, and listens. Called again, after the loop's pauses, while it throws an `ExpectedError`, and when the listener was lost: an
   * address that is in use, or does not exist yet, never ends a program.
   */
  readonly listen: () => Promise<void> | void;
}

/**
 * Keeps a program listening until the signal aborts: listens at once, checks at `everyMs` and after each wake, and listens again when the listener was
 * lost. The caller closes the listener. Rejects as {@link Loop.run} does.
 */
export function keepListening({ isListening, listen, ...options }: KeepListeningOptions): Promise<void> {
  return repeat(async () => {
    if (!isListening()) await listen();
  }, options);
}
