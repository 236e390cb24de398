import type { AbortOptions } from "#base/async";
import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import type { NicClaim, NicStatus } from "#kube/nic";
import type { CniResult } from "#wire/cni";
import type { ClaimBook } from "./claim-book.ts";
import type { NicCallErrorCode } from "./failure.ts";
import type { NodePlace } from "./gates.ts";
import type { OperatorSettings } from "./operator-settings.ts";
import type { PluggedNic } from "./plan-changes.ts";
import type { NicCall } from "./request.ts";

/** The part of a plan that the service knows. */
export interface SandboxPlanLike {
  readonly containerId: string;
  readonly podUid: string;
  /** The network's name, for GC. */
  readonly network: string;
  /** The CNI_IFNAME of its ADD; absent in plans of older agents. */
  readonly ifname?: string | undefined;
  /** In the order of the pod, those that were added later at the end. */
  readonly nics: readonly PluggedNic[];
}

/** The NICs of a pod that its node has. */
export interface PluggedState<Nic extends PluggedNic> {
  readonly isPlugged: boolean;
  /** `undefined` while an ADD of the pod is at work, or one of its NICs is plugged: nobody knows what there will be. */
  readonly nics: readonly Nic[] | undefined;
}

/** Something that has happened to a NIC of a pod that runs, for an event of the pod. */
export interface NicNews {
  readonly type: "Normal" | "Warning";
  readonly reason: "NicPlugged" | "NicUnplugged" | "NicFailed";
  readonly note: string;
}

/** The claim and the call from which a plan is made. */
export interface PlanRequest {
  readonly claim: NicClaim;
  /** In the order of the pod. */
  readonly nics: readonly NicStatus[];
  readonly call: NicCall;
  /** The name of the NIC `eth0` in the sandbox, if the call gives it another one. */
  readonly primaryName: string | undefined;
  /** True: another network has made `eth0` of the sandbox, as with Multus. */
  readonly isSecondary: boolean;
}

/** The NICs of a hand-over to a runtime of virtual machines. */
export interface HandedNics {
  readonly nics: readonly { readonly name?: string; readonly portID?: string }[];
}

/** One kind of network, by the `type` of its configuration. */
export interface NetworkKind {
  readonly type: string;
  /** True: ADD ends only when the provider has told that the ports are active. */
  readonly awaitsActive: boolean;
  /** True: ports of a container without a plan are found by a switch. */
  readonly hasSwitch: boolean;
}

/** The collaborators of the service; `Plan` is the plan of a sandbox. */
export interface NicServiceDeps<Plan extends SandboxPlanLike> {
  readonly claims: ClaimBook;
  /** Reads a pod live; `undefined`: there is none of that name. */
  readonly readPod: (
    namespace: string,
    name: string,
    options: AbortOptions,
  ) => Promise<{ readonly uid: string; readonly annotations: Readonly<Record<string, string>> } | undefined>;
  /** Reads a claim live; `undefined` if there is none. Rejects with an expected error. */
  readonly readClaim: (namespace: string, uid: string, options: AbortOptions) => Promise<NicClaim | undefined>;
  /** The hand-over in CNI_ARGS; `undefined` without one. Throws an expected error for a faulty one. */
  readonly handOver: (args: string) => HandedNics | undefined;
  /** Such as `eth0=Failed(IpInUse)`. */
  readonly describe: (nics: readonly NicStatus[]) => string;
  /** The kinds of networks whose calls are served. */
  readonly networks: readonly NetworkKind[];
  /** Throws an expected error for a status that no NIC can be made of. */
  readonly plan: (request: PlanRequest) => Plan;
  readonly resultOf: (plan: Plan) => CniResult;
  /**
   * The plan of a NIC that is added to a sandbox; a text says why it cannot be. Throws an expected error for a status that no NIC can be made of.
   */
  readonly planAdded: (plan: Plan, claim: NicClaim, nic: NicStatus) => Plan["nics"][number] | string;
  readonly network: {
    setUp(plan: Plan, options: { readonly signal: AbortSignal }): Promise<Plan>;
    tearDown(
      containerId: string,
      options: {
        readonly signal: AbortSignal;
        readonly ifname?: string | undefined;
        readonly known: Plan | undefined;
        readonly scan: { readonly ovsdb: string; readonly bridge: string } | undefined;
      },
    ): Promise<{ readonly found: boolean; readonly podUid: string | undefined; readonly lost: readonly string[] }>;
    check(
      containerId: string,
      netns: string,
      options: { readonly signal: AbortSignal; readonly ifname?: string | undefined },
    ): Promise<readonly string[] | undefined>;
    plug(
      containerId: string,
      nic: Plan["nics"][number],
      options: { readonly signal: AbortSignal },
    ): Promise<Plan["nics"][number] | undefined>;
    unplug(containerId: string, portId: string, options: { readonly signal: AbortSignal }): Promise<boolean>;
    announce(plan: Plan): void;
    plans(): readonly Plan[];
  };
  /** The settings of the node's operator: the configuration of a network may have no other values. */
  readonly operator: OperatorSettings;
  /** The kind of a failure of the network; `undefined`: `internal`. */
  readonly kindOf: (error: unknown) => NicCallErrorCode | undefined;
  /** Called when NICs of a pod were plugged or unplugged, with the names of lost ones. */
  readonly onPlugged: (podUid: string, lost: readonly string[]) => void;
  /** Called for what becomes of NICs of a pod that runs. */
  readonly onNews: (claim: NicClaim, news: NicNews) => void;
  /** Called for a pod whose NICs cannot be had before it is replaced. */
  readonly onFailed: (claim: NicClaim, why: string) => void;
  /** Called with the time of a step of ADD, in seconds. */
  readonly onStep: (step: "plumbable" | "plug" | "active", seconds: number) => void;
  /** Does work on a claim, unless that is set aside: then it resolves to `undefined` without it. Default: always. */
  readonly passOf?: <T>(claim: NicClaim, work: () => Promise<T>, signal: AbortSignal) => Promise<T | undefined>;
  readonly place: NodePlace;
  readonly clock: Clock;
  readonly log: Logger;
}
