import type { VpcPort } from "#cloud/vpc";
import type { Pod } from "#kube/client";
import type { NamedNic, NicClaim } from "#kube/nic";

/** The NICs that a pod requests. */
export type AuditedWish =
  | { readonly kind: "none" }
  | { readonly kind: "host-network" }
  | { readonly kind: "faulty"; readonly faults: readonly { readonly field: string; readonly message: string }[] }
  | { readonly kind: "wanted"; readonly vpc: string; readonly nics: readonly NamedNic[] };

/** The rules of webhooks and controller, by which pods, claims and ports are judged; the program passes them in. */
export interface NicAuditRules {
  /** With the defaults of the pod's namespace. */
  readonly wishOf: (pod: Pod) => AuditedWish;
  /** The names of annotations and conditions in which a pod differs from what its claim has. */
  readonly shownDifferences: (pod: Pod, claim: NicClaim) => readonly string[];
  /** The ports that were made for a pod, by NIC; `recorded` has the ids that its claim names. */
  readonly ownPorts: (
    ports: readonly VpcPort[],
    podUID: string,
    recorded: ReadonlyMap<string, string>,
  ) => ReadonlyMap<string, { readonly port: VpcPort; readonly surplus: readonly VpcPort[] }>;
  /** The ports of this cluster that nobody wants. */
  readonly orphansOf: (
    ports: Iterable<VpcPort>,
    world: {
      readonly clusterId: string;
      readonly isWanted: (podUID: string) => boolean;
      readonly now: number;
      readonly minAgeMs: number;
    },
  ) => readonly { readonly id: string; readonly podUID: string; readonly namespace: string }[];
}
