import type { AbortOptions } from "#base/async";
import { systemClock } from "#base/clock";
import type { KubeApi } from "#kube/client";
import {
  type BlockController,
  checkRights,
  findRuns,
  isAlive,
  type KeptDefinition,
  type LabIdentity,
  OwnershipError,
  removeOwn,
  surveyCluster,
} from "#lab/ownership";
import { labCrds } from "./cluster.ts";

/**
 * Checks that a lab can be a guest on a cluster: its user has the rights, no other lab is there, and no object of others
 * would change. Removes objects of earlier runs of this lab. Creates nothing. Rejects with `OwnershipError` and `KubeError`.
 */
export async function enterCluster(
  api: KubeApi,
  identity: LabIdentity,
  { say, signal }: AbortOptions & { readonly say: (text: string) => void },
): Promise<BlockController> {
  await checkRights(api, { signal });
  await removeDeadRuns(api, identity.lab, { say, signal });
  const controller = await surveyCluster(api, identity, labCrds(identity), { signal, clock: systemClock });
  if (controller === "cluster") say("the cluster's own coil-ipam-controller carves the blocks");
  return controller;
}

/**
 * Removes the objects of dead runs of a lab whose files are lost, such as after a restart of the machine. Resolves with the number of runs.
 * Rejects with {@link OwnershipError} `in-use` if one of them is alive.
 */
export async function removeDeadRuns(
  api: KubeApi,
  lab: string,
  { say, signal }: AbortOptions & { readonly say: (text: string) => void },
): Promise<number> {
  const runs = (await findRuns(api, { signal })).filter((run) => run.lab === lab);
  for (const run of runs) {
    if (await isAlive(api, run, { signal, clock: systemClock })) {
      throw new OwnershipError(
        "in-use",
        `lab ${lab} (run ${run.run}) already runs on the cluster and was started on another machine: remove it there with isthmus lab down`,
      );
    }
    sayHandedOver(await removeOwn(api, run, { signal, clock: systemClock }), say);
    say(`removed the objects that run ${run.run} of lab ${lab} had left on the cluster`);
  }
  return runs.length;
}

/** Removes the objects of this run, whose programs must have ended. Rejects with `OwnershipError` and `KubeError`. */
export async function leaveCluster(
  api: KubeApi,
  identity: LabIdentity,
  { say, signal }: AbortOptions & { readonly say: (text: string) => void },
): Promise<void> {
  say("removing the lab's objects from the cluster");
  sayHandedOver(await removeOwn(api, identity, { signal, clock: systemClock }), say);
}

function sayHandedOver(all: readonly KeptDefinition[], say: (text: string) => void): void {
  for (const { definition, inUseBy } of all)
    say(
      `CustomResourceDefinition ${definition} is not removed, because the cluster uses it: ${inUseBy} does not belong to the lab`,
    );
}
