import { printable } from "#base/text";
import { isPluggable } from "#cloud/vpc";
import type { Event, Pod } from "#kube/client";
import { NICS_ANNOTATION, NICS_READY, type NicClaim, type NicStatus } from "#kube/nic";
import type { AuditedWish } from "../audit/rules.ts";
import { remedyOf } from "./remedies.ts";

/** One step of the story of a NIC. */
export interface TraceStep {
  readonly step: "wish" | "admission" | "claim" | "scheduled" | "port" | "bound" | "plugged" | "active" | "shown";
  readonly state: "done" | "waiting" | "failed";
  /** When it was done, RFC 3339, if that is recorded. */
  readonly at?: string | undefined;
  readonly text: string;
}

/** The story of one NIC. */
export interface NicTrace {
  readonly nic: string;
  readonly steps: readonly TraceStep[];
  /** The step at which it stands, why, and what can be done; absent: it is ready. */
  readonly stands?: { readonly step: TraceStep["step"]; readonly why: string; readonly remedy?: string } | undefined;
}

/** The story of the NICs of a pod. */
export interface PodTrace {
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  readonly nics: readonly NicTrace[];
  /** The events of the pod about its NICs, oldest first. */
  readonly events: readonly {
    readonly at: string;
    readonly reason: string;
    readonly count: number;
    readonly note: string;
  }[];
}

/** The input of {@link tracePod}. */
export interface TraceInput {
  readonly pod: Pod;
  readonly claim: NicClaim | undefined;
  readonly wish: AuditedWish;
  readonly events: readonly Event[];
}

/** The programs whose events are of NICs. */
const REPORTERS: ReadonlySet<string> = new Set(["nic-controller", "nic-agent"]);

/** The story of a pod's NICs: wish, admission, claim, port, node, binding, plugging, activity, and where each of them stands. Pure. */
export function tracePod({ pod, claim, wish, events }: TraceInput): PodTrace {
  const names =
    claim?.spec.nics.map(({ name }) => name) ?? (wish.kind === "wanted" ? wish.nics.map(({ name }) => name) : [""]);
  const common = commonSteps({ pod, claim, wish });
  return {
    namespace: pod.metadata.namespace ?? "",
    pod: pod.metadata.name,
    uid: pod.metadata.uid,
    nics: names.map((name) => traceNic(name, common, { pod, claim })),
    events: events
      .filter(({ reportingController = "" }) => REPORTERS.has(reportingController))
      .map(({ eventTime, metadata, reason = "", series, note = "" }) => ({
        at: timeText(eventTime) ?? timeText(metadata.creationTimestamp) ?? "",
        reason,
        count: series?.count ?? 1,
        note,
      }))
      .sort((one, other) => (one.at < other.at ? -1 : 1)),
  };
}

function commonSteps({ pod, claim, wish }: Omit<TraceInput, "events">): readonly TraceStep[] {
  const at = timeText(pod.metadata.creationTimestamp);
  const steps: TraceStep[] = [{ step: "wish", state: "done", at, text: "" }];
  switch (wish.kind) {
    case "none":
      return [
        {
          step: "wish",
          state: "failed",
          text: "the pod asks for no NICs: it has neither isthmus.dev/vpc nor isthmus.dev/nics",
        },
      ];
    case "host-network":
      return [{ step: "wish", state: "failed", at, text: "the pod has the network of its node, so it gets no NICs" }];
    case "faulty": {
      const faults = wish.faults.map(({ field, message }) => `${field}: ${message}`).join("; ");
      return [{ step: "wish", state: "failed", at, text: `the pod asks for NICs that it cannot have: ${faults}` }];
    }
    case "wanted":
      steps[0] = {
        step: "wish",
        state: "done",
        at,
        text: `the pod asks for ${wish.nics.length} NICs of VPC ${wish.vpc}`,
      };
  }
  const isNormal = isNormalForm(pod.metadata.annotations?.[NICS_ANNOTATION], wish.nics.length);
  steps.push({
    step: "admission",
    state: "done",
    at,
    text: isNormal ? "the webhook has brought the NICs into normal form" : "the pod was stored without the webhook",
  });
  if (claim === undefined) {
    const why =
      "nic-controller has not made a NicClaim: the events below tell why, or it does not lead (nicctl doctor)";
    return [...steps, { step: "claim", state: "waiting", text: why }];
  }
  steps.push({
    step: "claim",
    state: "done",
    at: timeText(claim.metadata.creationTimestamp),
    text: `NicClaim ${claim.metadata.name} of provider ${claim.spec.provider}, phase ${claim.status?.phase ?? "not told yet"}`,
  });
  return steps;
}

function isNormalForm(text: string | undefined, count: number): boolean {
  if (text === undefined) return false;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return false;
    throw error;
  }
  return (
    Array.isArray(value) &&
    value.length === count &&
    value.every((nic) => typeof (nic as { name?: unknown } | null)?.name === "string")
  );
}

function traceNic(
  name: string,
  common: readonly TraceStep[],
  { pod, claim }: Pick<TraceInput, "pod" | "claim">,
): NicTrace {
  const steps = claim === undefined ? common : [...common, ...ownSteps(name, { pod, claim })];
  const at = steps.find(({ state }) => state !== "done");
  if (at === undefined) return { nic: name, steps };
  const reason = claim?.status?.nics?.find((nic) => nic.name === name)?.reason;
  const remedy = remedyOf(reason);
  return {
    nic: name,
    steps,
    stands: { step: at.step, why: at.text, ...(remedy === undefined ? {} : { remedy }) },
  };
}

function ownSteps(name: string, { pod, claim }: { readonly pod: Pod; readonly claim: NicClaim }): TraceStep[] {
  const nic: NicStatus = claim.status?.nics?.find((one) => one.name === name) ?? { name, state: "Unknown" };
  const why = whyText(nic);
  // A failure belongs to the first step that is not done.
  let isOpen = true;
  const step = (
    kind: TraceStep["step"],
    isDone: boolean,
    done: Omit<TraceStep, "step" | "state">,
    waits: string,
  ): TraceStep => {
    if (isDone) return { step: kind, state: "done", ...done };
    const isFirst = isOpen;
    isOpen = false;
    const state = isFirst && nic.state === "Failed" ? "failed" : "waiting";
    // What comes later has no reason of its own.
    return { step: kind, state, text: !isFirst ? "" : why !== "" ? why : waits };
  };
  const node = pod.spec?.nodeName;
  const scheduled = pod.status?.conditions?.find(({ type }) => type === "PodScheduled");
  const plugged = claim.status?.conditions?.find(({ type }) => type === "Plugged");
  const told = claim.status?.plugged;
  const shown = pod.status?.conditions?.find(({ type }) => type === NICS_READY);
  const addresses = (nic.ips ?? []).map(({ ip, prefixLength }) => `${ip}/${prefixLength}`).join(", ");
  const whose = nic.createdByController === true ? "made" : "taken over from its user";
  const isBound = (nic.host ?? "") !== "" && isPluggable(nic);
  const port = step(
    "port",
    nic.portID !== undefined && nic.createdAt !== undefined,
    { at: nic.createdAt, text: `port ${nic.portID} was ${whose}, with ${addresses === "" ? "no address" : addresses}` },
    "nic-controller has not made the port yet",
  );
  return [
    port,
    step(
      "scheduled",
      node !== undefined,
      {
        at: scheduled?.status === "True" ? timeText(scheduled.lastTransitionTime) : undefined,
        text: `on node ${node}`,
      },
      "the pod has no node yet: kubectl describe pod tells why",
    ),
    step(
      "bound",
      isBound,
      { text: `to host ${nic.host}, as ${nic.vifType}` },
      `the port is not bound to a host${nic.vifType === "binding_failed" ? ": the provider refuses it" : ""}`,
    ),
    step(
      "plugged",
      plugged?.status === "True" && (told === undefined || told.nics.some((one) => one.name === name)),
      { at: plugged?.lastTransitionTime, text: plugged?.message ?? "" },
      `node ${node ?? "(none)"} has not plugged it: does nic-agent run there, and does its CNI configuration have the type vpc-neutron or vpc-alcor?`,
    ),
    step(
      "active",
      nic.state === "Ready",
      { at: nic.activeAt, text: "the provider says that the port is active" },
      `the provider's agent on host ${nic.host ?? ""} has not told that the port is active`,
    ),
    step(
      "shown",
      shown?.status === "True",
      { at: timeText(shown?.lastTransitionTime), text: `condition ${NICS_READY} of the pod is true` },
      `condition ${NICS_READY} of the pod is not true yet${shown?.message === undefined ? "" : `: ${shown.message}`}`,
    ),
  ];
}

function whyText({ reason, message, nextRetryAt, attempts }: NicStatus): string {
  const why = [reason, message].filter((one) => one !== undefined && one !== "").join(": ");
  if (why === "") return "";
  const again = nextRetryAt === undefined ? "" : `; ${attempts ?? 0} attempts, the next at ${nextRetryAt}`;
  return `${why}${again}`;
}

/** Times may be read as `Date` or text. */
function timeText(time: unknown): string | undefined {
  if (time instanceof Date) return time.toISOString();
  return typeof time === "string" && time !== "" ? time : undefined;
}

/** The story for people: each time with its distance from the first one. Pure. */
export function traceText({ namespace, pod, uid, nics, events }: PodTrace): string {
  const start = Date.parse(nics[0]?.steps[0]?.at ?? "");
  const since = (at: string | undefined): string => {
    const seconds = (Date.parse(at ?? "") - start) / 1000;
    return Number.isNaN(seconds) ? "" : `${seconds < 0 ? "-" : "+"}${Math.abs(seconds).toFixed(1)}s`;
  };
  const rows = nics.flatMap(({ nic, steps, stands }) => [
    "",
    `NIC ${nic === "" ? "(none)" : nic}: ${stands === undefined ? "ready" : `stands at "${stands.step}"`}`,
    ...steps.map(({ step, state, at, text }) =>
      `  ${state.padEnd(7)}  ${step.padEnd(9)}  ${(at ?? "-").padEnd(24)}  ${since(at).padStart(8)}  ${text}`.trimEnd(),
    ),
    ...(stands?.remedy === undefined ? [] : [`  remedy: ${stands.remedy}`]),
  ]);
  const told = events.map(
    ({ at, reason, count, note }) =>
      `  ${at.padEnd(27)}  ${since(at).padStart(8)}  ${reason}${count > 1 ? ` (${count} times)` : ""}: ${note}`,
  );
  const all = [`pod ${namespace}/${pod} (${uid})`, ...rows, ...(told.length === 0 ? [] : ["", "events:", ...told])];
  return `${all.map(printable).join("\n")}\n`;
}
