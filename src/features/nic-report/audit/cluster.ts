import type { AbortOptions } from "#base/async";
import { ExpectedError } from "#base/errors";
import type { VpcPort } from "#cloud/vpc";
import { isKubeError, type KubeApi, type Namespace, resources } from "#kube/client";
import { CLAIM_CLUSTER_LABEL, type NicClaim, nicResources, PROVIDER_HOST_ANNOTATION } from "#kube/nic";
import { auditNics, type NicAudit } from "./audit.ts";
import type { NicAuditRules } from "./rules.ts";
import type { NicNode } from "./state.ts";

/** The providers whose ports are compared. */
export interface PortSource {
  /** The names of the providers. */
  readonly names: readonly string[];
  /** All ports of this suite. Rejects with an expected error. */
  readonly owned: (provider: string, options: AbortOptions) => Promise<readonly VpcPort[]>;
  /** The ports with these ids, as far as there are. Rejects with an expected error. */
  readonly withIds: (provider: string, ids: readonly string[], options: AbortOptions) => Promise<readonly VpcPort[]>;
}

/** The collaborators of {@link auditNicCluster}. */
export interface NicAuditDeps {
  readonly api: KubeApi;
  /** The nodes that are asked. */
  readonly inspect: () => Promise<readonly NicNode[]>;
  /** Absent: no ports are compared. */
  readonly ports?: PortSource | undefined;
  readonly rules: (namespaces: ReadonlyMap<string, Namespace>) => NicAuditRules;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  readonly note: (text: string) => void;
}

/**
 * Reads pods, NicClaims, ports of providers and what nodes tell, and compares them. `undefined`: the cluster has no type NicClaim, these credentials
 * may not list them, or there is nothing of NICs. What cannot be read is told by `note`. Rejects with `KubeError`.
 */
export async function auditNicCluster(
  deps: NicAuditDeps,
  { clusterId, ...at }: AbortOptions & { readonly clusterId?: string | undefined },
): Promise<NicAudit | undefined> {
  const { api, note, rules } = deps;
  // A port is made for a claim that is stored already, so ports come first: what has no claim then, has none.
  const owned = await ownedPorts(deps, at);
  const claims = await readClaims(deps, at);
  if (claims === undefined) return undefined;
  const [pods, namespaces, nodeObjects, nodes] = await Promise.all([
    api.listAll(resources.pods, at),
    unlessForbidden(
      "VPCs that namespaces give to their pods",
      async () => (await api.listAll(resources.namespaces, at)).items,
      note,
    ),
    unlessForbidden("names of nodes at providers", async () => (await api.listAll(resources.nodes, at)).items, note),
    deps.inspect(),
  ]);
  const byName = new Map(namespaces?.map((one) => [one.metadata.name, one]));
  const own = rules(byName);
  const hasWish = pods.items.some((pod) => own.wishOf(pod).kind !== "none");
  if (claims.length === 0 && nodes.length === 0 && owned.size === 0 && !hasWish) return undefined;
  const uid = claims.length === 0 ? byName.get("kube-system")?.metadata.uid : undefined;
  const id = clusterId ?? clusterOf(claims) ?? uid;
  if (id === undefined && [...owned.values()].some((list) => list.length > 0))
    note("ports without a NicClaim are not looked for: no NicClaim tells the id of this cluster; give --cluster-id");
  const hosts = new Map(
    nodeObjects?.map(({ metadata }) => [metadata.name, metadata.annotations?.[PROVIDER_HOST_ANNOTATION]]),
  );
  return auditNics(
    {
      pods: pods.items,
      claims,
      nodes,
      ports: await withNamed(deps, owned, claims, at),
      clusterId: id,
      hostOf: (node) => hosts.get(node) || node,
      now: deps.now(),
    },
    own,
  );
}

/** The id of the cluster that claims have as label; `undefined` if none or several have one. Pure. */
export function clusterOf(claims: readonly NicClaim[]): string | undefined {
  const ids = new Set(claims.flatMap(({ metadata }) => metadata.labels?.[CLAIM_CLUSTER_LABEL] ?? []));
  return ids.size === 1 ? [...ids][0] : undefined;
}

async function readClaims({ api, note }: NicAuditDeps, at: AbortOptions): Promise<readonly NicClaim[] | undefined> {
  try {
    return (await api.listAll(nicResources.nicClaims, at)).items;
  } catch (error) {
    if (!isKubeError(error, "not-found", "forbidden")) throw error;
    if (error.code === "forbidden") note(`NICs of VPCs are not compared: ${error.message}`);
    return undefined;
  }
}

async function unlessForbidden<T>(
  what: string,
  read: () => Promise<T>,
  note: NicAuditDeps["note"],
): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (!isKubeError(error, "forbidden")) throw error;
    note(`${what} are not known: ${error.message}`);
    return undefined;
  }
}

async function ownedPorts(
  { ports, note }: NicAuditDeps,
  at: AbortOptions,
): Promise<ReadonlyMap<string, readonly VpcPort[]>> {
  const found = new Map<string, readonly VpcPort[]>();
  for (const name of ports?.names ?? []) {
    const list = await unlessFailed(() => ports?.owned(name, at), name, note);
    if (list !== undefined) found.set(name, list);
  }
  return found;
}

/** Ports of users have no mark of ours until they are bound, so those that claims name are read too. */
async function withNamed(
  { ports, note }: NicAuditDeps,
  owned: ReadonlyMap<string, readonly VpcPort[]>,
  claims: readonly NicClaim[],
  at: AbortOptions,
): Promise<ReadonlyMap<string, readonly VpcPort[]>> {
  const found = new Map<string, readonly VpcPort[]>();
  for (const [name, list] of owned) {
    const known = new Set(list.map(({ id }) => id));
    const named = claims
      .filter(({ spec }) => spec.provider === name)
      .flatMap(({ status }) => (status?.nics ?? []).flatMap(({ portID }) => portID ?? []))
      .filter((id) => !known.has(id));
    const more = named.length === 0 ? [] : await unlessFailed(() => ports?.withIds(name, named, at), name, note);
    // Without them, ports that exist would be missing.
    if (more !== undefined) found.set(name, [...list, ...more]);
  }
  return found;
}

async function unlessFailed<T>(
  read: () => Promise<T> | undefined,
  provider: string,
  note: NicAuditDeps["note"],
): Promise<T | undefined> {
  try {
    return await read();
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    note(`ports of provider ${provider} are not compared: ${error.message}`);
    return undefined;
  }
}
