import type { DialFailure } from "../dial/dialled-connection.ts";

/** The outcome of a dial at one of its agents. */
export type TryOutcome =
  | DialFailure["kind"]
  /** Its answer is late by the rule of docs/spec/tunnel.md#7.5. */
  | "overdue";

/** The other agents of the dial, which have not answered. */
export interface OtherTries {
  /** The dial was sent to another agent earlier, whose answer is not overdue. */
  readonly earlierOwes: boolean;
  /** The dial waits at another agent. */
  readonly othersWait: boolean;
  /** An error of an agent is held back. */
  readonly holdsError: boolean;
}

/**
 * - `fail`: the dial fails with this outcome. `fail-held`: with the error that was held back.
 * - `hold`: the error is held back. `wait`: nothing happens. `move`: the dial is sent to a further agent, and fails if there is none.
 */
export type Verdict = "fail" | "fail-held" | "hold" | "wait" | "move";

/**
 * Decides what an outcome that is no success means for the dial (docs/spec/tunnel.md#7.6). A second agent may not reach a host that the first one,
 * which its strategy prefers, reaches slowly: its error counts when the first one has had its time.
 */
export function judgeTry(outcome: TryOutcome, { earlierOwes, othersWait, holdsError }: OtherTries): Verdict {
  switch (outcome) {
    case "refused":
    case "aborted":
      return earlierOwes ? "hold" : "fail";
    case "link-lost":
      if (othersWait) return "wait";
      return holdsError ? "fail-held" : "move";
    case "overdue":
      return holdsError && !earlierOwes ? "fail-held" : "wait";
    case "timeout":
      return holdsError ? "fail-held" : "fail";
  }
}
