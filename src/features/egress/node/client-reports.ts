import type { ExpectedError } from "#base/errors";
import { type Logger, Repeats } from "#base/log";
import type { EventRecorder } from "#kube/events";
import { type ClientSync, type ClientWish, faultText, type gatewaysOf, skipText } from "../client/index.ts";
import type { ClientPod } from "./client-pods.ts";

/** A log line and an event name at most this many faults. */
const MAX_NAMED = 5;
/** The reasons of the events that name what a running pod lacks. */
const REASONS = ["EgressIncomplete", "EgressRefused"] as const;
/** A key of the log's repeats that is no UID. */
const LEFT_MARKS = "left marks";
/** A router's namespace has the same tables and rules as a client's, each of which would remove those of the other. */
const ROUTER_TEXT =
  "the pod is a router of an Egress by its labels, and routers cannot use an Egress: its annotations egress.coil.cybozu.com/<namespace> have no effect; remove them";

type EventPod = Pick<ClientPod["metadata"], "name" | "namespace" | "uid">;

/** The reason, as a sentence, why the state of a pod's namespace cannot be what it should be. */
export function wayText(error: Error): string {
  return `the pod's way to its Egress: ${error.message}`;
}

/** Events and log lines about the clients of a node. Each fault is reported when it is new; holds two texts for each pod with faults. */
export class ClientReports {
  readonly #events: Pick<EventRecorder, "record">;
  readonly #log: Logger;
  readonly #repeats = new Repeats();

  constructor({ events, log }: { readonly events: Pick<EventRecorder, "record">; readonly log: Logger }) {
    this.#events = events;
    this.#log = log;
  }

  /** Writes an event of the pod. Equal ones are counted. */
  event({ name, namespace, uid }: EventPod, reason: string, note: string): void {
    const regarding = { apiVersion: "v1", kind: "Pod", name, uid, ...(namespace === undefined ? {} : { namespace }) };
    this.#events.record({ regarding, type: "Warning", reason, note });
  }

  /** Reports the Egresses that do not allow the pod. */
  refused(pod: ClientPod, faults: ReturnType<typeof gatewaysOf>["faults"]): void {
    this.#report(pod.metadata, "EgressRefused", faults.filter(({ why }) => why === "refused").map(faultText));
  }

  /** Reports all else that a pod lacks after a comparison. */
  incomplete(
    pod: ClientPod,
    faults: ReturnType<typeof gatewaysOf>["faults"],
    { skipped, wish }: Pick<ClientSync, "skipped"> & { readonly wish: ClientWish },
  ): void {
    const others = faults.filter(({ why }) => why !== "refused").map(faultText);
    const texts = [...(pod.isRefused ? [ROUTER_TEXT] : []), ...others, ...closedTexts(wish), ...skipped.map(skipText)];
    this.#report(pod.metadata, "EgressIncomplete", texts);
  }

  /** Logs the faults of a pod and writes an event, when they are new. */
  #report(metadata: ClientPod["metadata"], reason: (typeof REASONS)[number], texts: readonly string[]): void {
    const { uid, namespace, name } = metadata;
    if (texts.length === 0) {
      this.#repeats.forget(`${reason} ${uid}`);
      return;
    }
    const more = texts.length > MAX_NAMED ? [`and ${texts.length - MAX_NAMED} more`] : [];
    const note = [...texts.slice(0, MAX_NAMED), ...more].join("; ");
    if (!this.#repeats.isNew(`${reason} ${uid}`, note)) return;
    const what =
      reason === "EgressRefused"
        ? "a pod may not use an Egress that it names"
        : "a pod has not all that its annotations name";
    this.#log.warn(what, { namespace, pod: name, faults: note });
    this.event(metadata, reason, note);
  }

  /** Logs the changes of a comparison, if there are any. */
  changed({ namespace, name }: EventPod, changes: number, { gateways, closed }: ClientWish): void {
    if (changes === 0) return;
    this.#log.info("the NAT client of a pod changed", {
      namespace,
      pod: name,
      changes,
      gateways: gateways.length,
      closed: closed.annotation.length + closed.selector.length,
    });
  }

  /** Logs why marks of connections may be left: once for each reason, not for each pod. */
  leftMarks({ message: error }: ExpectedError): void {
    if (!this.#repeats.isNew(LEFT_MARKS, error)) return;
    this.#log.warn("marks of connections may be left in pods; they have no effect any more", { error });
  }

  forget(uid: string): void {
    for (const reason of REASONS) this.#repeats.forget(`${reason} ${uid}`);
  }
}

/** The destinations that are closed for a pod without a fault of an Egress that there is. */
function closedTexts({ held }: ClientWish): string[] {
  const gone = [...held.egresses].filter(([, { by, gateways }]) => by === "selector" && gateways.length === 0);
  const lost = gone.flatMap(([, { destinations }]) => destinations).length + held.found.selector.length;
  if (lost === 0) return [];
  const whose = gone.length === 0 ? "an Egress" : `Egress ${gone.map(([key]) => key).join(", ")}`;
  return [
    `${whose} does not select the pod any more, or may not: ${lost} destinations stay unreachable until the pod is made anew or selected again`,
  ];
}
