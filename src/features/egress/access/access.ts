import type { Namespace } from "#kube/client";
import {
  CLIENTS_OF_ANNOTATION,
  type ClientEntry,
  compileSelector,
  consentsTo,
  EGRESS_ANNOTATION_PREFIX,
  type Egress,
  type LabelMatcher,
  routerEgress,
} from "#kube/coil";

/** The name of an Egress. */
export interface EgressRef {
  readonly namespace: string;
  readonly name: string;
}

/** Which pods may use an Egress, and which it chooses: `spec.allowedNamespaces` and `spec.clients`, compiled. */
export interface EgressAccess extends EgressRef {
  /** Absent: every namespace is allowed. */
  readonly allowed?: { readonly names: ReadonlySet<string>; readonly selects: LabelMatcher | undefined };
  /** The entries of `spec.clients`. */
  readonly entries: readonly AccessEntry[];
  /** The same for two states of an Egress whose access is the same. */
  readonly text: string;
}

/** One entry of `spec.clients`, compiled. */
interface AccessEntry {
  /** Absent: the Egress's own namespace. */
  readonly selectsNamespace: LabelMatcher | undefined;
  readonly selectsPod: LabelMatcher;
}

/** A Pod as the rules of access need it. */
export interface AccessPod {
  readonly namespace: string;
  readonly labels: Readonly<Record<string, string>> | undefined;
  /** The Egresses that its annotations name: `egressNames` of `#kube/coil`. */
  readonly named: ReadonlyMap<string, readonly string[]>;
}

/** A Namespace as the rules of access need it. */
export interface AccessNamespace {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>> | undefined;
  /** The text of the annotation `isthmus.dev/egress-clients-of`. */
  readonly clientsOf: string | undefined;
}

/** The reason for which a pod may not use an Egress that it names, or that selects it. */
export type RefusalReason =
  /** `spec.allowedNamespaces` does not have the pod's namespace. */
  | "namespace-not-allowed"
  /** The Namespace has not been read yet, and the Egress has a rule that needs it. */
  | "namespace-unknown"
  /** An Egress of another namespace chooses the pod, and the Namespace of the pod does not consent. */
  | "no-consent";

/** `annotation`: the pod names the Egress. `selector`: `spec.clients` of the Egress selects the pod. */
export type UsedBy = "annotation" | "selector";

/**
 * The verdict on a pod and an Egress. A refusal by `annotation` closes the Egress's destinations for the pod. One by `selector` has no effect on the pod: who may
 * create an Egress must not take, or stop, the traffic of others by it.
 */
export type EgressUse =
  | { readonly kind: "none" }
  | { readonly kind: "client"; readonly by: UsedBy }
  | { readonly kind: "refused"; readonly by: UsedBy; readonly reason: RefusalReason };

/** Pure: the view of a Namespace. */
export function accessNamespace({
  metadata: { name, labels, annotations },
}: Pick<Namespace, "metadata">): AccessNamespace {
  return { name, labels, clientsOf: annotations?.[CLIENTS_OF_ANNOTATION] };
}

/** Pure: the access rules of an Egress. An Egress without a spec allows everybody and chooses nobody. */
export function egressAccess({
  metadata: { namespace = "", name },
  spec,
}: {
  readonly metadata: Pick<Egress["metadata"], "namespace" | "name">;
  readonly spec?: Egress["spec"] | undefined;
}): EgressAccess {
  const allowedNamespaces = spec?.allowedNamespaces ?? undefined;
  const clients = spec?.clients ?? [];
  const entries = clients.map(entryOf);
  const text = JSON.stringify([allowedNamespaces ?? null, clients]);
  if (allowedNamespaces === undefined) return { namespace, name, entries, text };
  const { names, selector } = allowedNamespaces;
  const selects = selector === undefined ? undefined : compileSelector(selector);
  return { namespace, name, entries, text, allowed: { names: new Set(names), selects } };
}

function entryOf({ namespaceSelector, podSelector }: ClientEntry): AccessEntry {
  return {
    selectsNamespace: namespaceSelector === undefined ? undefined : compileSelector(namespaceSelector),
    selectsPod: compileSelector(podSelector ?? {}),
  };
}

const NONE: EgressUse = { kind: "none" };
const CLIENT: Readonly<Record<UsedBy, EntryGroup["use"]>> = {
  annotation: { kind: "client", by: "annotation" },
  selector: { kind: "client", by: "selector" },
};
const refused = (by: UsedBy, reason: RefusalReason): EntryGroup["use"] => ({ kind: "refused", by, reason });

/**
 * Pure: whether a pod uses an Egress (docs/spec/pod-network.md#7.5). `namespace` is the pod's Namespace; `undefined` while it is not known, which allows
 * nothing that would need it. A router of an Egress uses none.
 */
export function egressUse(egress: EgressAccess, pod: AccessPod, namespace: AccessNamespace | undefined): EgressUse {
  if (routerEgress(pod.labels) !== undefined) return NONE;
  if (pod.named.get(egress.namespace)?.includes(egress.name) === true) {
    const reason = refusalOf(egress, pod.namespace, namespace);
    return reason === undefined ? CLIENT.annotation : refused("annotation", reason);
  }
  const group = groupsFor(egress, pod.namespace, namespace).find((one) => selects(one, pod));
  return group?.use ?? NONE;
}

/** Entries of `spec.clients` of an Egress with the same verdict on all pods of a namespace that one of them selects. */
export interface EntryGroup {
  readonly entries: readonly AccessEntry[];
  readonly use: Exclude<EgressUse, { readonly kind: "none" }>;
}

/**
 * Pure: the entries of `spec.clients` that reach a namespace, in at most two groups. Of a pod the first group counts that selects it. An entry for the Egress's own namespace needs
 * no Namespace. The selectors of others cannot be compared with one that is not known: all that could reach it refuse the pod until it is.
 */
export function groupsFor(
  egress: EgressAccess,
  podNamespace: string,
  namespace: AccessNamespace | undefined,
): readonly EntryGroup[] {
  const isOwn = podNamespace === egress.namespace;
  const own = egress.entries.filter(({ selectsNamespace }) => selectsNamespace === undefined && isOwn);
  const others = egress.entries.filter(({ selectsNamespace }) =>
    namespace === undefined ? selectsNamespace !== undefined : selectsNamespace?.(namespace.labels) === true,
  );
  const use = selectedUse(egress, podNamespace, namespace);
  const groups =
    namespace === undefined
      ? [
          { entries: own, use },
          { entries: others, use: refused("selector", "namespace-unknown") },
        ]
      : [{ entries: [...own, ...others], use }];
  return groups.filter(({ entries }) => entries.length > 0);
}

/** Pure: whether an entry of the group selects the pod. */
export function selects({ entries }: EntryGroup, { labels }: Pick<AccessPod, "labels">): boolean {
  return entries.some(({ selectsPod }) => selectsPod(labels));
}

/** The use of an Egress by a pod that one of its entries selects. It is the same for all such pods of a namespace. */
function selectedUse(
  egress: EgressAccess,
  podNamespace: string,
  namespace: AccessNamespace | undefined,
): EntryGroup["use"] {
  const reason = refusalOf(egress, podNamespace, namespace);
  if (reason !== undefined) return refused("selector", reason);
  if (podNamespace !== egress.namespace && !consentsTo(namespace?.clientsOf, egress))
    return refused("selector", "no-consent");
  return CLIENT.selector;
}

/** Returns the reason for which the pods of a namespace may not use an Egress; `undefined` if they may. Pods of the Egress's own namespace always may. */
function refusalOf(
  { namespace: own, allowed }: EgressAccess,
  podNamespace: string,
  namespace: AccessNamespace | undefined,
): RefusalReason | undefined {
  if (allowed === undefined || podNamespace === own || allowed.names.has(podNamespace)) return undefined;
  if (allowed.selects === undefined) return "namespace-not-allowed";
  if (namespace === undefined) return "namespace-unknown";
  return allowed.selects(namespace.labels) ? undefined : "namespace-not-allowed";
}

/** Pure: the field that refuses, as a path in the object that has it. */
export function refusingField(reason: RefusalReason): string {
  return reason === "no-consent" ? `metadata.annotations[${CLIENTS_OF_ANNOTATION}]` : "spec.allowedNamespaces";
}

/** Pure: a refusal as a sentence that names the Egress, the namespace and the field, and whom to ask. */
export function refusalText(
  egress: EgressRef,
  podNamespace: string,
  { by, reason }: Pick<Extract<EgressUse, { readonly kind: "refused" }>, "by" | "reason">,
): string {
  const name = JSON.stringify(`${egress.namespace}/${egress.name}`);
  const field = refusingField(reason);
  const pods = `pods of namespace ${JSON.stringify(podNamespace)}`;
  const orRemove =
    by === "annotation"
      ? `, or remove it from the annotation ${EGRESS_ANNOTATION_PREFIX}${egress.namespace} of the pod`
      : "";
  switch (reason) {
    case "namespace-not-allowed":
      return `Egress ${name} does not allow ${pods}: ask those who manage this Egress to add the namespace to its ${field}${orRemove}`;
    case "namespace-unknown":
      return `Egress ${name} is restricted by its ${field}, and the Namespace ${JSON.stringify(podNamespace)} has not been read yet; it is tried again`;
    case "no-consent":
      return `Egress ${name} chooses ${pods}, and that Namespace does not consent: ask those who manage the Namespace to name the Egress in its ${field}`;
  }
}
