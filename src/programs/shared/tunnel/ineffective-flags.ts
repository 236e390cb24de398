import type { Logger } from "#base/log";

/** A flag of Konnectivity that has no effect here. */
export interface IneffectiveFlag {
  readonly flag: string;
  /** The given value; it is compared with the default. */
  readonly value: number | string;
  readonly initial: number | string;
  /** The flags that have the effect here. */
  readonly instead: string;
}

/** Names the flags that replace Konnectivity's limits of queues in packets. */
export const QUEUES_IN_BYTES =
  "queues are bounded in bytes: --conn-buffer-bytes for one connection, --max-buffered-bytes for all";

/** Returns a sentence for each flag whose value is not the default. */
export function describeIneffective(flags: readonly IneffectiveFlag[]): string[] {
  return flags
    .filter(({ value, initial }) => value !== initial)
    .map(({ flag, instead }) => `--${flag} has no effect: ${instead}`);
}

/** Logs the sentences of {@link describeIneffective} once, at the start. */
export function logIneffectiveFlags(log: Logger, sentences: readonly string[]): void {
  if (sentences.length > 0) log.info("some flags have no effect", { flags: sentences });
}
