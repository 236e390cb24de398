import { COIL_FINALIZER } from "#kube/coil";

/** The part of an object that its removal needs. */
export interface FoundObject {
  readonly name: string;
  readonly namespace?: string | undefined;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly isDeleting: boolean;
  readonly finalizers: readonly string[];
}

/** The types of objects that a lab, its programs, or the cluster because of the lab create. */
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

/** The objects of a run on a cluster. Events are removed last, separately. */
export interface Found extends Readonly<Record<Exclude<FoundType, "events">, readonly FoundObject[]>> {
  /** Pods of others that are bound to the lab's Nodes: of DaemonSets that tolerate every taint. */
  readonly strayPods: readonly FoundObject[];
  /** For each definition, by name, an object of its type that does not belong to the lab. */
  readonly foreignInstances: ReadonlyMap<string, string>;
}

/** One request. */
export type Removal =
  | { readonly op: "delete"; readonly type: FoundType; readonly object: FoundObject; readonly force: boolean }
  /** Removes our finalizer: the program that would do it has ended. */
  | { readonly op: "release"; readonly type: FoundType; readonly object: FoundObject }
  /** Removes the lab's labels from a definition that other objects use now, so that it belongs to the cluster. */
  | { readonly op: "hand-over"; readonly object: FoundObject; readonly inUseBy: string };

/** The next requests, and the number of their objects; the next phase begins when all of these are removed. */
export interface RemovalPhase {
  readonly phase: string;
  readonly waitingFor: readonly FoundObject[];
  readonly steps: readonly Removal[];
}

/** The order of the removal: an object is removed when no other object would create it again or needs it for its own removal. */
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
 * Pure: the next requests for the remaining objects; `undefined` if none remains. It can be repeated: a terminating object is waited
 * for and not deleted again, unless one of our finalizers or a kubelet that has ended keeps it.
 */
export function nextRemoval(found: Found): RemovalPhase | undefined {
  for (const { phase, types } of PHASES) {
    const left = types.flatMap((type) => found[type].map((object) => ({ type, object })));
    if (left.length > 0) return phaseOf(phase, left);
  }
  // After the Nodes: a DaemonSet creates its pods again while there is a Node. Objects with finalizers of other programs are removed by
  // those programs.
  const stray = found.strayPods.filter(({ isDeleting, finalizers }) => !isDeleting || finalizers.length === 0);
  if (stray.length > 0)
    return phaseOf(
      "pods of other owners on the lab's nodes",
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
      // No kubelet confirms the end of a pod, so it gets no grace period.
      const force = type === "pods";
      const isReleased = object.finalizers.includes(COIL_FINALIZER);
      return [
        ...(object.isDeleting && !force ? [] : [{ op: "delete", type, object, force } as const]),
        ...(isReleased ? [{ op: "release", type, object } as const] : []),
      ];
    }),
  };
}
