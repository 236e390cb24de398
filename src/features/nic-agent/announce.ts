import { describeError, ExpectedError } from "#base/errors";
import type { NicServiceDeps, SandboxPlanLike } from "./service-deps.ts";

/** Tells neighbours of the addresses of NICs. Neighbours find the addresses without an announcement too, only later; so its failure is none of the ADD. */
export function announce<Plan extends SandboxPlanLike>(
  { network, log }: Pick<NicServiceDeps<Plan>, "network" | "log">,
  plan: Plan,
): void {
  try {
    network.announce(plan);
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    log.warn("addresses of NICs could not be announced", {
      containerID: plan.containerId,
      error: describeError(error),
    });
  }
}
