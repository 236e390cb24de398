import type { NicClaim } from "#kube/nic";
import type { ClaimStep } from "../plan/plan-claim.ts";

/** Claims that are worked on at a time. */
export const CLAIM_WORKERS = 256;
/**
 * Turns of claims that ask a provider. The other workers are for claims whose ports are there, such as those that are active just now, and whose pods do not
 * start before that is written. A lane has nearly two requests of 50 ports.
 */
export const PROVIDER_TURNS = { most: 192, mostInLane: 96 };

/** The lane in which a step waits for its turn; `undefined`: the step asks no provider. Pure. */
export function laneOf({ do: what }: ClaimStep, { spec }: Pick<NicClaim, "spec">): string | undefined {
  const { provider, projectID, vpc } = spec;
  switch (what) {
    case "release":
      return `release/${provider}`;
    case "make":
      return `make/${provider}/${projectID ?? vpc}`;
    case "look-up":
    case "give-up":
    case "regroup":
    case "unbind":
    case "bind":
      return `change/${provider}`;
    default:
      return undefined;
  }
}
