import type { AbortOptions } from "#base/async";
import type { IpAddress } from "#base/ip";
import type { FoundPod, PodIdentity } from "./pod-identity.ts";

/** The pod of an ADD, whose interface is there. */
export interface ClientRequest {
  readonly pod: FoundPod;
  /** The path of the pod's namespace. */
  readonly netns: string;
  readonly ifname: string;
  readonly ipv4: IpAddress | undefined;
  readonly ipv6: IpAddress | undefined;
}

/** The collaborators that give a pod the routes to its Egresses beside its interface (docs/spec/pod-network.md#7). */
export interface ClientDeps {
  /** Idempotent. Does nothing for a pod that names no Egress. Rejects with {@link CniFailure}. */
  readonly setUp: (request: ClientRequest, options: AbortOptions) => Promise<void>;
  /**
   * CHECK: rejects with {@link CniFailure} naming the first thing that the pod lacks. Asks no API server: it resolves where this pod or its Egresses
   * are not known. The UID is empty if the runtime has not told it.
   */
  readonly check: (pod: PodIdentity, options: AbortOptions) => Promise<void>;
}
