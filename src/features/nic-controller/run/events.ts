import { type NicStatus, PROVIDER_HOST_ANNOTATION, tenantText } from "#kube/nic";
import type { ClaimRecord } from "../plan/record.ts";
import type { PodView } from "../world.ts";
import type { NicControllerDeps } from "./deps.ts";

type EventDeps = Pick<NicControllerDeps, "observer" | "log" | "clock">;

/** An event, and a line of the log, for a pod that does not get all NICs that it asks for by now; none for an empty reason. */
export function reportRefusal({ observer, log }: EventDeps, pod: PodView, why: string): void {
  if (why === "") return;
  observer.event(pod, { type: "Warning", reason: "NicsRefused", note: why });
  const { name, namespace } = pod.metadata;
  log.warn("pod gets no other NICs", { pod: name, namespace, why });
}

/** An event, once, for a Node whose annotation was lost: new pods are bound to another host than those that run. */
export function reportHost(
  { observer, log }: EventDeps,
  pod: PodView | undefined,
  before: ClaimRecord,
  after: ClaimRecord,
): void {
  const { keptHost: host, uid: claim } = after;
  if (host === before.keptHost || host === undefined || pod === undefined) return;
  const { nodeName: node } = pod.spec;
  const note = `the Node ${node} has no annotation ${PROVIDER_HOST_ANNOTATION} any more; the ports stay bound where they are`;
  observer.event(pod, { type: "Warning", reason: "ProviderHostKept", note });
  log.warn("a Node does not say its host at the provider any more, so ports stay where they are", {
    claim,
    node,
    host,
  });
}

/** Metrics, events and lines of the log for NICs that became ready, and for those that have failed. */
export function reportNews(
  { observer, log, clock }: EventDeps,
  { record, pod }: { readonly record: ClaimRecord; readonly pod: PodView | undefined },
  {
    ready,
    failed,
  }: { readonly ready: readonly NicStatus[]; readonly failed: readonly (NicStatus & { readonly reason: string })[] },
): void {
  const { pluggedAt, uid } = record;
  for (const _nic of ready) if (pluggedAt !== undefined) observer.active((clock.monotonic() - pluggedAt) / 1000);
  for (const nic of failed) {
    const { name, reason, message } = nic;
    log.warn("a NIC has failed", { claim: uid, nic: name, reason, why: message });
    if (pod !== undefined) observer.event(pod, { type: "Warning", reason, note: `${name}: ${tenantText(nic)}` });
  }
}
