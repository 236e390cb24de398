import { ExpectedError } from "#base/errors";
import type { NicClaim, NicStatus } from "#kube/nic";
import { NicCallError } from "./failure.ts";
import { PRIMARY } from "./plan-changes.ts";
import type { NicCall } from "./request.ts";
import type { HandedNics, NicServiceDeps, PlanRequest, SandboxPlanLike } from "./service-deps.ts";
import { hasVpcData } from "./vpc-data.ts";

/** The uid that runtimes are told of a static pod, as the mirror of the pod has it (kubelet's types.ConfigHashAnnotationKey). */
const STATIC_POD_UID = "kubernetes.io/config.hash";

type CallPodsDeps = Pick<NicServiceDeps<SandboxPlanLike>, "claims" | "readClaim" | "readPod" | "handOver">;

/** The pods of calls. */
export class CallPods {
  readonly #deps: CallPodsDeps;

  constructor(deps: CallPodsDeps) {
    this.#deps = deps;
  }

  /**
   * The uid of the pod of a call (docs/spec/vpc-nics.md#8.1). A pod of which nothing says that it has a VPC has none when it has no claim, which is read
   * live once. Throws `no-vpc`.
   */
  async podOf(call: NicCall, handed: HandedNics | undefined, signal: AbortSignal): Promise<string> {
    const { claims, readClaim } = this.#deps;
    const { podUid, namespace } = call;
    if (podUid === undefined) {
      const ports = (handed?.nics ?? []).flatMap(({ portID }) => (portID === undefined ? [] : [portID]));
      const claim = claims.withPorts(ports);
      if (claim !== undefined) return claim.metadata.name;
      if (handed === undefined) throw new NicCallError("no-vpc", "CNI_ARGS has neither K8S_POD_UID nor NICs");
      throw new NicCallError("try-again", `no claim of this node has the ports ${ports.join(", ")} yet`);
    }
    if (claims.get(podUid) !== undefined || handed !== undefined || callHasVpcData(call)) return podUid;
    const isTold = call.annotations !== undefined || namespace === undefined;
    const live = isTold ? undefined : await readClaim(namespace, podUid, { signal });
    if (live !== undefined || (!isTold && (await this.#wishesVpc(call, { namespace, podUid }, signal)))) return podUid;
    throw new NicCallError(
      "no-vpc",
      "the pod has no VPC, and the configuration names no plugin for such pods (delegate)",
    );
  }

  /**
   * Resolves with true if the pod itself asks for a VPC, where the runtime does not tell: its claim may not be made yet, and a pod of a VPC must not get the
   * network of others. Throws `try-again` for a pod that was replaced.
   */
  async #wishesVpc(
    { podName }: NicCall,
    { namespace, podUid }: { readonly namespace: string; readonly podUid: string },
    signal: AbortSignal,
  ): Promise<boolean> {
    if (podName === undefined) return false;
    const pod = await this.#deps.readPod(namespace, podName, { signal });
    // The API server does not know static pods of a kubelet before their mirrors, which have no VPC.
    if (pod === undefined) return false;
    const { uid, annotations } = pod;
    if (uid !== podUid && annotations[STATIC_POD_UID] !== podUid)
      throw new NicCallError("try-again", `pod ${namespace}/${podName} has been replaced: it has the uid ${uid} now`);
    return hasVpcData(annotations);
  }

  /** The hand-over of a call; `undefined` without one. Throws `invalid-arguments` for a faulty one. */
  handOver({ args }: NicCall): HandedNics | undefined {
    try {
      return this.#deps.handOver(
        Object.entries(args)
          .map(([key, value]) => `${key}=${value}`)
          .join(";"),
      );
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      throw new NicCallError("invalid-arguments", error.message, { cause: error });
    }
  }
}

/** True if the annotations that a call passes say that its pod has a VPC. */
export function callHasVpcData({ annotations = {} }: NicCall): boolean {
  return hasVpcData(annotations);
}

/** True if a claim is that of the pod of a call: a claim of another namespace is not, even if it has the uid of the pod. */
export function isOf({ namespace }: NicCall, { metadata }: NicClaim): boolean {
  return namespace === undefined || metadata.namespace === undefined || metadata.namespace === namespace;
}

/** Throws `invalid-arguments` for a hand-over that names other ports than the claim: it is for another pod. */
export function requireHanded(handed: HandedNics | undefined, nics: readonly NicStatus[]): void {
  for (const { portID } of handed?.nics ?? []) {
    if (portID !== undefined && !nics.some((nic) => nic.portID === portID))
      throw new NicCallError(
        "invalid-arguments",
        `CNI_ARGS has the port ${portID}, which is not one of the pod's claim`,
      );
  }
}

/** The CNI_IFNAME of a call; `undefined` for a caller that gives none. */
export function ifnameOf({ ifname }: NicCall): string | undefined {
  return ifname === "" ? undefined : ifname;
}

/**
 * The name of the NIC `eth0` in the sandbox: that of CNI_IFNAME, unless a hand-over names its NICs itself (docs/spec/vpc-nics.md#8.4). A runtime that
 * wants another name than `eth0` has made that one by another network, except one of virtual machines, which hands NICs over. Throws `invalid-arguments`
 * for a name that another NIC of the pod has.
 */
export function naming(
  call: NicCall,
  handed: HandedNics | undefined,
  { spec }: NicClaim,
): Pick<PlanRequest, "primaryName" | "isSecondary"> {
  const ifname = ifnameOf(call);
  if (ifname === undefined || ifname === PRIMARY) return { primaryName: undefined, isSecondary: false };
  const isSecondary = handed === undefined;
  if (handed?.nics[0]?.name !== undefined) return { primaryName: undefined, isSecondary };
  if (spec.nics.some(({ name }) => name === ifname))
    throw new NicCallError(
      "invalid-arguments",
      `CNI_IFNAME "${ifname}" is the name of another NIC of the pod: give the network another name in the pod (with Multus NETWORK@NAME in k8s.v1.cni.cncf.io/networks), or that NIC in nics`,
    );
  return { primaryName: ifname, isSecondary };
}
