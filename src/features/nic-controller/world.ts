import type { NamedNic, NicClaim, NicPolicySpec } from "#kube/nic";

/** The part of a Pod that is kept. */
export interface PodView {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string | undefined;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly deletionTimestamp?: string | undefined;
    readonly annotations?: Readonly<Record<string, string>> | undefined;
  };
  readonly spec: {
    readonly nodeName?: string | undefined;
    readonly hostNetwork?: boolean | undefined;
    /** True if it waits for its ports before it gets a node. */
    readonly isGated?: boolean | undefined;
  };
  readonly status: {
    readonly phase?: string | undefined;
    readonly conditions?: readonly PodConditionView[] | undefined;
  };
}

/** One condition of a Pod. */
export interface PodConditionView {
  readonly type: string;
  readonly status: "True" | "False" | "Unknown";
  readonly reason?: string;
  readonly message?: string;
  readonly lastTransitionTime?: string;
}

/** The part of a Namespace that is kept. */
export interface NamespaceView {
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly annotations?: Readonly<Record<string, string>> | undefined;
}

/** The part of a Node that is kept. */
export interface NodeView {
  readonly annotations?: Readonly<Record<string, string>> | undefined;
  /** The time since which the Node is not ready, in milliseconds since the epoch; `undefined` if it is ready. */
  readonly notReadySince: number | undefined;
}

/** The cluster, from caches. */
export interface NicCluster {
  readonly claim: (namespace: string, uid: string) => NicClaim | undefined;
  readonly claims: () => Iterable<NicClaim>;
  /** The pod with a uid. */
  readonly pod: (uid: string) => PodView | undefined;
  readonly namespace: (name: string) => NamespaceView | undefined;
  readonly node: (name: string) => NodeView | undefined;
  readonly policy: () => NicPolicySpec;
}

/** NICs that a pod asks for, in normal form. */
export interface WantedNics {
  readonly kind: "wanted";
  readonly vpc: string;
  readonly nics: readonly NamedNic[];
  readonly vm?: { readonly flavor?: string | undefined } | undefined;
}

/** The NICs that a pod requests. */
export type PodWish =
  | WantedNics
  | { readonly kind: "none" }
  | { readonly kind: "host-network" }
  | { readonly kind: "faulty"; readonly faults: readonly { readonly field: string; readonly message: string }[] };

/** A change of what a Pod shows. */
export interface PodSurfaceChange {
  readonly annotations?: Readonly<Record<string, string>>;
  readonly condition?: PodConditionView;
}

/** The rules of pods' NICs, which the webhooks have as well; the program passes them in. */
export interface NicRules {
  readonly wishOf: (pod: PodView, namespace: NamespaceView | undefined) => PodWish;
  /** The reason why the policy does not allow a wish in a namespace; else the provider's name, if the policy names one, and the project. */
  readonly allow: (
    policy: NicPolicySpec,
    wish: WantedNics,
    namespace: string,
    view: NamespaceView | undefined,
  ) =>
    | { readonly refused: string; readonly why?: string }
    | { readonly provider: string | undefined; readonly projectID: string | undefined };
  readonly tenantOf: (
    policy: NicPolicySpec,
    namespace: string,
    view: NamespaceView | undefined,
  ) => { readonly name: string; readonly maxPorts?: number | undefined } | undefined;
  /** The reasons why a claim may not get other NICs than it has (docs/spec/vpc-nics.md#1.2, update rules); empty: it may. */
  readonly change: (
    policy: NicPolicySpec,
    before: readonly NamedNic[],
    after: readonly NamedNic[],
  ) => readonly string[];
  /** Returns the changes by which a pod shows its claim. */
  readonly surface: (pod: PodView, claim: NicClaim, now: number) => PodSurfaceChange;
}
