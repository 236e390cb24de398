import { Loop, type LoopOptions, type PassOptions, type PassResult } from "./loop.ts";

export interface RepeatOptions extends LoopOptions {
  /** The loop ends, without an error, when this signal aborts. */
  readonly signal: AbortSignal;
}

/** Runs a {@link Loop} whose progress nobody reads. Rejects as {@link Loop.run} does. */
export function repeat(
  // biome-ignore lint/suspicious/noConfusingVoidType: as for Loop.run
  work: (options: PassOptions) => Promise<PassResult | void>,
  { signal, ...options }: RepeatOptions,
): Promise<void> {
  return new Loop(options).run(work, { signal });
}
