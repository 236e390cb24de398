import type { Fact } from "#base/diagnosis";
import type { CustomResourceDefinition, Deployment, Lease, Node, Secret } from "#kube/client";
import type { AddressBlock, AddressPool, BlockRequest, Egress } from "#kube/coil";
import type { PolicyFacts } from "../policies.ts";
import type { Instance, Objects } from "../status/facts.ts";
import type { NeededRight } from "./rights.ts";

/** One webhook of a configuration, with what stands behind it. */
export interface WebhookFacts {
  /** The name of the configuration. */
  readonly configuration: string;
  readonly webhook: string;
  readonly caBundle: string;
  readonly service: string;
  /** The number of its ready endpoints. */
  readonly endpoints: Fact<number>;
  /** The certificate of its servers; `undefined`: they have it from elsewhere, and not of the Secret of the manifests. */
  readonly secret: Fact<Secret | undefined>;
}

/** A Node, as far as it is judged. */
export interface NodeAddresses {
  readonly name: string;
  readonly addresses: readonly string[];
}

/** The facts of a cluster. */
export interface ClusterFacts {
  /** Milliseconds since the epoch. */
  readonly now: number;
  readonly instances: Fact<readonly Instance[]>;
  readonly nodes: Fact<readonly NodeAddresses[]>;
  readonly crds: Fact<readonly CustomResourceDefinition[]>;
  readonly webhooks: Fact<readonly WebhookFacts[]>;
  readonly pools: Objects<AddressPool>;
  readonly blocks: Objects<Pick<AddressBlock, "metadata">>;
  readonly requests: Objects<BlockRequest>;
  readonly egresses: Objects<Egress>;
  readonly routers: Objects<Deployment>;
  /** The pods that name an Egress that does not allow their namespace: `namespace/name`, and why in one sentence. */
  readonly refusedClients: Fact<readonly { readonly pod: string; readonly why: string }[]>;
  /** `spec.loadBalancerSourceRanges` of Services do these things that their owners may not expect: `namespace/name`, a sentence, and whether it lets in too many. */
  readonly sourceRanges: Fact<readonly { readonly service: string; readonly note: string; readonly isOpen: boolean }[]>;
  readonly policies: Fact<PolicyFacts>;
  readonly leases: Fact<readonly Lease[]>;
  /** The rights that accounts of programs lack; a fault where they could not be reviewed. */
  readonly lackedRights: Fact<
    readonly { readonly program: string; readonly account: string; readonly right: NeededRight }[]
  >;
}

/** The addresses of a Node. Pure. */
export function nodeAddresses({ metadata, status }: Node): NodeAddresses {
  const own = (status?.addresses ?? []).filter(({ type }) => type === "InternalIP");
  return { name: metadata.name, addresses: own.map(({ address }) => address) };
}
