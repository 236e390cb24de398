import { COIL_FINALIZER } from "#kube/coil";

/** An object as far as its removal is concerned. */
export interface FoundObject {
  readonly name: string;
  readonly namespace?: string | undefined;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly isDeleting: boolean;
  readonly finalizers: readonly string[];
}

/** The types whose objects a lab, its programs, or the cluster on its account make. */
export type FoundType =
  | "deployments"
  | "replicaSets"
  | "services"
  | "pods"
  | "blockRequests"
  | "addressBlocks"
  | "addressPools"
  | "leases"
  | "nodes"
  | "namespaces"
  | "events"
  | "customResourceDefinitions";

/** What a run has left on a cluster; Events come last, by themselves. */
export interface Found extends Readonly<Record<Exclude<FoundType, "events">, readonly FoundObject[]>> {
  /** Pods of others that are bound to the lab's Nodes: of DaemonSets that tolerate every taint. */
  readonly strayPods: readonly FoundObject[];
  /** By the name of a definition, an object of its type that is not the lab's. */
  readonly foreignInstances: ReadonlyMap<string, string>;
}

/** One request. */
export type Removal =
  | { readonly op: "delete"; readonly type: FoundType; readonly object: FoundObject; readonly force: boolean }
  /** Takes our finalizer off: who would do it runs no more. */
  | { readonly op: "release"; readonly type: FoundType; readonly object: FoundObject }
  /** Takes the lab's labels off a definition that others use now: it is theirs. */
  | { readonly op: "hand-over"; readonly object: FoundObject; readonly inUseBy: string };

/** What is done next, and how many objects it is about; the phase after it begins when none of them is left. */
export interface RemovalPhase {
  readonly phase: string;
  readonly waitingFor: readonly FoundObject[];
  readonly steps: readonly Removal[];
}

/** In this order: nothing is removed while something that is left would make it again, or needs it to end. */
const PHASES: readonly { readonly phase: string; readonly types: readonly Exclude<FoundType, "events">[] }[] = [
  { phase: "workloads", types: ["deployments", "replicaSets", "services"] },
  { phase: "pods", types: ["pods"] },
  { phase: "block requests", types: ["blockRequests"] },
  { phase: "blocks", types: ["addressBlocks"] },
  { phase: "pools", types: ["addressPools"] },
  { phase: "nodes", types: ["nodes", "leases"] },
  { phase: "namespaces", types: ["namespaces"] },
];

/**
 * Pure: what to ask for next, from what there is; `undefined` when nothing is left. Harmless to repeat: an object that ends already is waited
 * for, not asked again, unless a finalizer of ours or a kubelet that is no more keeps it.
 */
export function nextRemoval(found: Found): RemovalPhase | undefined {
  for (const { phase, types } of PHASES) {
    const left = types.flatMap((type) => found[type].map((object) => ({ type, object })));
    if (left.length > 0) return phaseOf(phase, left);
  }
  // Only once the Nodes are gone: a DaemonSet makes its pods again as long as there is a Node. What others' finalizers keep is theirs.
  const stray = found.strayPods.filter(({ isDeleting, finalizers }) => !isDeleting || finalizers.length === 0);
  if (stray.length > 0)
    return phaseOf(
      "pods of others on the lab's nodes",
      stray.map((object) => ({ type: "pods", object })),
    );
  const crds = found.customResourceDefinitions;
  if (crds.length > 0) {
    return {
      phase: "types",
      waitingFor: crds,
      steps: crds.flatMap((object): Removal[] => {
        const inUseBy = found.foreignInstances.get(object.name);
        if (inUseBy !== undefined && !object.isDeleting) return [{ op: "hand-over", object, inUseBy }];
        return object.isDeleting ? [] : [{ op: "delete", type: "customResourceDefinitions", object, force: false }];
      }),
    };
  }
  return undefined;
}

function phaseOf(
  phase: string,
  left: readonly { readonly type: FoundType; readonly object: FoundObject }[],
): RemovalPhase {
  return {
    phase,
    waitingFor: left.map(({ object }) => object),
    steps: left.flatMap(({ type, object }): Removal[] => {
      // No kubelet confirms the end of a pod, so that its time is not waited for.
      const force = type === "pods";
      const isReleased = object.finalizers.includes(COIL_FINALIZER);
      return [
        ...(object.isDeleting && !force ? [] : [{ op: "delete", type, object, force } as const]),
        ...(isReleased ? [{ op: "release", type, object } as const] : []),
      ];
    }),
  };
}
