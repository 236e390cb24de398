import { createHash } from "node:crypto";

/** The API group of Coil v2, kept so that existing users' objects stay valid. */
export const COIL_GROUP = "coil.cybozu.com";
/** The version within {@link COIL_GROUP}. */
export const COIL_VERSION = "v2";

/** Annotation of a Namespace: the pool of its pods (docs/spec/pod-network.md#2.1). */
export const POOL_ANNOTATION = "coil.cybozu.com/pool";
/** The pool of pods whose Namespace has no pool annotation. */
export const DEFAULT_POOL = "default";
/** Label of an AddressBlock: its pool. */
export const POOL_LABEL = "coil.cybozu.com/pool";
/** Label of an AddressBlock: its node. */
export const NODE_LABEL = "coil.cybozu.com/node";
/** Label of an AddressBlock: the uid of the BlockRequest that caused it. */
export const REQUEST_LABEL = "coil.cybozu.com/request";
/** Label of an AddressBlock; with `"true"`, the block is counted and routed, but no address of it is allocated. */
export const RESERVED_LABEL = "coil.cybozu.com/reserved";
/** Finalizer of AddressPools and AddressBlocks. */
export const COIL_FINALIZER = "coil.cybozu.com";
/** Prefix of the Pod annotation that names Egresses; the namespace of the Egresses follows it. */
export const EGRESS_ANNOTATION_PREFIX = "egress.coil.cybozu.com/";
/**
 * Annotation of a Namespace: the Egresses of other namespaces that may choose its pods by `spec.clients`, as `NAMESPACE/NAME` or `NAMESPACE/*`, separated by
 * commas (docs/spec/pod-network.md#2.1).
 */
export const CLIENTS_OF_ANNOTATION = "isthmus.dev/egress-clients-of";
/** The maximum length of a label value; names of nodes and pools become label values. */
export const MAX_LABEL_VALUE_LENGTH = 63;

/** The labels of everything that an Egress makes, keys sorted; also the selector of its pods. */
export function egressLabels(egressName: string): Record<string, string> {
  return {
    "app.kubernetes.io/component": "egress",
    "app.kubernetes.io/instance": egressName,
    "app.kubernetes.io/name": "coil",
  };
}

/** {@link egressLabels} as a selector, in the form of `status.selector`. */
export function egressSelector(egressName: string): string {
  return Object.entries(egressLabels(egressName))
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
}

/** Name of the routers' ServiceAccount, and of the ClusterRoleBinding that gives it its rights. */
export const ROUTER_ACCOUNT = "coil-egress";
/** The ClusterRoleBindings whose subjects are the routers' accounts; the second one is of Coil before 2.1. */
export const ROUTER_BINDINGS: readonly string[] = [ROUTER_ACCOUNT, `psp-${ROUTER_ACCOUNT}`];
/** Label of the AddressPool of an Egress: the Egress's namespace. The Egress's name is one of {@link egressLabels}. */
export const EGRESS_NAMESPACE_LABEL = "coil.cybozu.com/egress-namespace";

/** The name of the AddressPool of an Egress with `spec.addresses`. It does not depend on the addresses. */
export function egressPoolName({ namespace, name }: { readonly namespace: string; readonly name: string }): string {
  return `egress-${createHash("sha256").update(`${namespace}/${name}`).digest("hex").slice(0, 16)}`;
}

/** The name of the Egress whose router a pod may be by its labels; `undefined` if it is none. */
export function routerEgress(labels: Readonly<Record<string, string>> | undefined): string | undefined {
  const name = labels?.["app.kubernetes.io/instance"];
  if (labels === undefined || name === undefined || name === "") return undefined;
  return Object.entries(egressLabels(name)).every(([key, value]) => labels[key] === value) ? name : undefined;
}

/** The name of the only outstanding request of a node for blocks of a pool, as Coil has it. */
export function blockRequestName(pool: string, node: string): string {
  return `req-${pool}-${node}`;
}

/**
 * The name of the request where {@link blockRequestName} is that of another pool and node: `default-gpu` and `n1` have the same one as
 * `default` and `gpu-n1`.
 */
export function otherBlockRequestName(pool: string, node: string): string {
  const hash = createHash("sha256").update(`${pool}/${node}`).digest("hex").slice(0, 8);
  return `${blockRequestName(pool, node)}-${hash}`;
}

/**
 * The Egresses that a Pod's annotations name, by namespace; names are trimmed; empty and repeated names are removed.
 * At most `limit` names in all are read.
 */
export function egressNames(
  annotations: Readonly<Record<string, string>> | undefined,
  limit = 1000,
): Map<string, readonly string[]> {
  const byNamespace = new Map<string, readonly string[]>();
  let left = limit;
  for (const [key, value] of Object.entries(annotations ?? {})) {
    if (!key.startsWith(EGRESS_ANNOTATION_PREFIX)) continue;
    const names = new Set(
      value
        .split(",", left)
        .map((name) => name.trim())
        .filter((name) => name !== ""),
    );
    left = Math.max(0, left - names.size);
    if (names.size > 0) byNamespace.set(key.slice(EGRESS_ANNOTATION_PREFIX.length), [...names]);
  }
  return byNamespace;
}

/** The maximum number of entries of {@link CLIENTS_OF_ANNOTATION} that are read; further ones give no consent. */
const MAX_CONSENTS = 1000;

/**
 * Pure: whether a Namespace with this text of {@link CLIENTS_OF_ANNOTATION} lets an Egress of another namespace choose its pods. Entries that are neither
 * `NAMESPACE/NAME` nor `NAMESPACE/*` give no consent.
 */
export function consentsTo(
  text: string | undefined,
  { namespace, name }: { readonly namespace: string; readonly name: string },
): boolean {
  if (text === undefined) return false;
  return text.split(",", MAX_CONSENTS).some((entry) => {
    const own = entry.trim();
    return own === `${namespace}/${name}` || own === `${namespace}/*`;
  });
}
