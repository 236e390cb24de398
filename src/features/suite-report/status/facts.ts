import type { Fact } from "#base/diagnosis";
import type { Deployment, Event, Lease, Node, Pod } from "#kube/client";
import type { AddressBlock, AddressPool, BlockRequest, Egress } from "#kube/coil";
import type { NicClaim } from "#kube/nic";
import type { Sample } from "../answers/exposition.ts";
import type { ReadyPart } from "../answers/readiness.ts";
import type { ForwardFinding } from "../forward-drops.ts";
import type { PolicyFacts } from "../policies.ts";
import { type EndpointPlace, endpointsOf, type SuiteCommand, suiteCommands } from "../programs.ts";

/** A program of the suite that runs, or should: a container of a Pod, or a process of the machine of the report. */
export interface Instance extends SuiteCommand {
  /** `NAMESPACE/POD`; `process PID` for a process of this machine. */
  readonly name: string;
  readonly pod:
    | {
        readonly namespace: string;
        readonly name: string;
        /** The name of its ServiceAccount. */
        readonly account: string;
      }
    | undefined;
  /** The Node's name; empty for a pod that is not scheduled. */
  readonly node: string;
  /** The version by the tag of the image; `undefined` if it has none. */
  readonly tag: string | undefined;
  /** The readiness by the Pod; a process counts as ready until its answer says otherwise. */
  readonly isReady: boolean;
  /** The reason why it is not ready, as far as the Pod tells. */
  readonly reason: string;
  readonly restarts: number;
  readonly health: EndpointPlace | undefined;
  readonly metrics: EndpointPlace | undefined;
}

/** The answers of one program. An answer is missing where the program is not asked, since it has no such endpoint. */
export interface InstanceAnswer {
  /** The parts, and whether it said that it is ready. */
  readonly readiness?: Fact<{ readonly isReady: boolean; readonly parts: readonly ReadyPart[] }> | undefined;
  readonly samples?: Fact<readonly Sample[]> | undefined;
}

/** A Node, as far as it is shown. */
export interface NodeView {
  readonly name: string;
  readonly isReady: boolean;
  readonly kubelet: string;
}

/** A kind of objects: `undefined` where the cluster does not have the kind. */
export type Objects<T> = Fact<readonly T[] | undefined>;

/** All that was read for a report. */
export interface SuiteFacts {
  readonly server: string;
  /** Milliseconds since the epoch. */
  readonly now: number;
  readonly nodes: Fact<readonly NodeView[]>;
  readonly instances: Fact<readonly Instance[]>;
  /** Programs that are processes of this machine and no pods. */
  readonly processes: readonly Instance[];
  /** The answers by {@link Instance.name} and program, see {@link instanceKey}; programs that were not asked are missing. */
  readonly answers: ReadonlyMap<string, InstanceAnswer>;
  readonly pools: Objects<AddressPool>;
  readonly blocks: Objects<Pick<AddressBlock, "metadata">>;
  readonly requests: Objects<BlockRequest>;
  readonly egresses: Objects<Egress>;
  readonly routers: Objects<Deployment>;
  readonly services: Fact<number>;
  readonly slices: Fact<number>;
  /** Read where `coild` runs; else there are none. */
  readonly policies: Fact<PolicyFacts>;
  readonly claims: Objects<NicClaim>;
  readonly leases: Objects<Lease>;
  /** The findings about packet filters of this machine and packets of pods; `undefined` where no coild makes links here. */
  readonly forward: Fact<readonly ForwardFinding[]> | undefined;
  /** Warnings that programs of the suite wrote. */
  readonly events: Objects<Event>;
}

/** The key of an instance in {@link SuiteFacts.answers}. Pure. */
export function instanceKey({ name, program }: Pick<Instance, "name" | "program">): string {
  return `${name} ${program}`;
}

/** The view of a Node. Pure. */
export function nodeView({ metadata, status }: Node): NodeView {
  const isReady = status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") === true;
  return { name: metadata.name, isReady, kubelet: status?.nodeInfo?.kubeletVersion ?? "" };
}

/** The namespace of the suite's programs. Routers of Egresses alone are in others. */
const SYSTEM = "kube-system";

/**
 * The programs of the suite in a Pod; empty for a Pod of something else, and for one that has ended. Outside of kube-system only routers count, unless
 * `namespace` was asked for: whoever may make pods could give one the labels and the command of any program. Pure.
 */
export function instancesOf({ metadata, spec, status }: Pod, namespace = SYSTEM): readonly Instance[] {
  if (status?.phase === "Succeeded" || (status?.phase === "Failed" && spec?.restartPolicy === "Never")) return [];
  return (spec?.containers ?? []).flatMap(({ name, command = [], args = [], image = "" }): readonly Instance[] => {
    const own = suiteCommands([...command, ...args]);
    const all = own.length === 0 && command.length === 0 ? suiteCommands([name, ...args]) : own;
    const commands = all.filter(({ program }) => program === "coil-egress" || metadata.namespace === namespace);
    const state = status?.containerStatuses?.find((one) => one.name === name);
    return commands.map((found) => ({
      ...found,
      name: `${metadata.namespace ?? ""}/${metadata.name}`,
      pod: {
        namespace: metadata.namespace ?? "",
        name: metadata.name,
        account: spec?.serviceAccountName ?? "default",
      },
      node: spec?.nodeName ?? "",
      tag: tagOf(image),
      isReady: state?.ready === true && metadata.deletionTimestamp === undefined,
      reason: reasonOf({ metadata, spec, status } as Pod, name),
      restarts: state?.restartCount ?? 0,
      ...endpointsOf(found),
    }));
  });
}

function reasonOf({ metadata, status }: Pod, container: string): string {
  if (metadata.deletionTimestamp !== undefined) return "the pod is being deleted";
  const { state, ready } = status?.containerStatuses?.find((one) => one.name === container) ?? {};
  if (state?.waiting?.reason !== undefined)
    return [state.waiting.reason, state.waiting.message].filter((text) => text !== undefined).join(": ");
  if (state?.terminated !== undefined) return `ended with code ${state.terminated.exitCode}`;
  const unscheduled = status?.conditions?.find(({ type, status: is }) => type === "PodScheduled" && is === "False");
  if (unscheduled !== undefined) return unscheduled.message ?? "not scheduled";
  if (state?.running === undefined) return `the pod is ${status?.phase ?? "new"}`;
  return ready === true ? "" : "the readiness probe fails";
}

/** The tag of an image; `undefined` for one that is named by its digest or has no tag. Pure. */
export function tagOf(image: string): string | undefined {
  return /^[^@]*:([^/:@]+)(?:@.*)?$/.exec(image)?.[1];
}
