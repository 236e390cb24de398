import type { AbortOptions } from "#base/async";
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
 * Makes sure that a lab can be on a cluster of somebody else: its user may do what a lab does, no other lab is there, and nothing of others
 * would be changed. What an earlier run of this lab has left goes; nothing is made. Rejects with `OwnershipError` and `KubeError`.
 */
export async function enterCluster(
  api: KubeApi,
  identity: LabIdentity,
  { say, signal }: AbortOptions & { readonly say: (text: string) => void },
): Promise<BlockController> {
  await checkRights(api, { signal });
  await removeDeadRuns(api, identity.lab, { say, signal });
  const controller = await surveyCluster(api, identity, labCrds(identity), { signal });
  if (controller === "cluster") say("the cluster's own coil-ipam-controller carves the blocks");
  return controller;
}

/**
 * Removes what runs of a lab have left on a cluster whose memory is lost, such as after a restart of the machine. Resolves with how many.
 * Rejects with {@link OwnershipError} `in-use` where one of them lives.
 */
export async function removeDeadRuns(
  api: KubeApi,
  lab: string,
  { say, signal }: AbortOptions & { readonly say: (text: string) => void },
): Promise<number> {
  const runs = (await findRuns(api, { signal })).filter((run) => run.lab === lab);
  for (const run of runs) {
    if (await isAlive(api, run, { signal })) {
      throw new OwnershipError(
        "in-use",
        `lab ${lab} (run ${run.run}) is up on the cluster, started elsewhere: isthmus lab down there removes it`,
      );
    }
    sayHandedOver(await removeOwn(api, run, { signal }), say);
    say(`removed what run ${run.run} of lab ${lab} had left on the cluster`);
  }
  return runs.length;
}

/** Removes what this run has made; nothing of it may run any more. Rejects with `OwnershipError` and `KubeError`. */
export async function leaveCluster(
  api: KubeApi,
  identity: LabIdentity,
  { say, signal }: AbortOptions & { readonly say: (text: string) => void },
): Promise<void> {
  say("removing the lab's objects from the cluster");
  sayHandedOver(await removeOwn(api, identity, { signal }), say);
}

function sayHandedOver(all: readonly KeptDefinition[], say: (text: string) => void): void {
  for (const { definition, inUseBy } of all)
    say(`CustomResourceDefinition ${definition} stays, and is the cluster's now: ${inUseBy} is not the lab's`);
}
