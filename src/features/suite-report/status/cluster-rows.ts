import { ExpectedError } from "#base/errors";
import type { Deployment, Lease } from "#kube/client";
import { maxBlocks, POOL_LABEL, parsePool } from "#kube/coil";
import { sumOf } from "../answers/exposition.ts";
import { judgePolicies } from "../policies.ts";
import { type Instance, instanceKey, type Objects, type SuiteFacts } from "./facts.ts";
import { answered, known } from "./program-rows.ts";
import { compare } from "./rows.ts";
import type { SuiteStatus } from "./suite-status.ts";

/** A row for each pool, with its blocks and addresses. */
export function poolRows(facts: SuiteFacts, instances: readonly Instance[]): SuiteStatus["pools"]["rows"] {
  const blocks = new Map<string, number>();
  for (const { metadata } of known(facts.blocks) ?? []) {
    const pool = metadata.labels?.[POOL_LABEL] ?? "";
    blocks.set(pool, (blocks.get(pool) ?? 0) + 1);
  }
  const samples = instances.flatMap((one) => answered(facts.answers.get(instanceKey(one))?.samples) ?? []);
  const sum = (pool: string, state: string) => sumOf(samples, "coil_coild_addresses", { pool, state });
  const rows = (known(facts.pools) ?? []).map(({ metadata: { name }, spec }) => ({
    name,
    blocks: blocks.get(name) ?? 0,
    maxBlocks: spec === undefined ? undefined : maxBlocksOf(spec),
    usedAddresses: sum(name, "used"),
    freeAddresses: sum(name, "free"),
  }));
  const share = (row: (typeof rows)[number]): number => row.blocks / (row.maxBlocks ?? row.blocks + 1);
  // The fullest first.
  return rows.sort((a, b) => share(b) - share(a) || compare(a.name, b.name));
}

/** The number of blocks of a pool; `undefined` for a spec that an older schema allowed and that cannot be read. Pure. */
export function maxBlocksOf(spec: Parameters<typeof parsePool>[0]): number | undefined {
  // An older schema allowed a pool without subnets.
  if (!Array.isArray(spec.subnets)) return undefined;
  try {
    return maxBlocks(parsePool(spec));
  } catch (error) {
    if (error instanceof ExpectedError) return undefined;
    throw error;
  }
}

/** The numbers of requests for blocks that wait, and of those that have failed. */
export function requestsOf({ requests }: SuiteFacts): SuiteStatus["requests"] {
  const all = known(requests);
  if (all === undefined) return undefined;
  const failed = all.filter(({ status }) =>
    status?.conditions?.some(({ type, status: is }) => type === "Failed" && is === "True"),
  );
  const waiting = all.filter(({ status }) => (status?.conditions ?? []).length === 0);
  return { waiting: waiting.length, failed: failed.length };
}

/** The NetworkPolicies, and whether something enforces them; `undefined` without any. */
export function policiesOf({ policies, nodes }: SuiteFacts): SuiteStatus["networkPolicies"] {
  const found = known(policies);
  return found === undefined || found.policies === 0 ? undefined : judgePolicies(found, known(nodes)?.length);
}

/** A row for each server of the tunnel. */
export function tunnelRows(
  instances: readonly Instance[],
  answers: SuiteFacts["answers"],
): SuiteStatus["tunnel"]["rows"] {
  return instances.flatMap((instance) => {
    const samples = answered(answers.get(instanceKey(instance))?.samples);
    if (samples === undefined) return [];
    const { name, program } = instance;
    const number = (metric: string): number => sumOf(samples, `konnectivity_network_proxy_${metric}`) ?? 0;
    if (program === "proxy-server") {
      const links = number("server_ready_backend_connections");
      return [
        { name, program, links, text: `${links} agents, ${number("server_established_connections")} connections` },
      ];
    }
    if (program !== "proxy-agent") return [];
    const links = number("agent_open_server_connections");
    return [{ name, program, links, text: `${links} of ${number("agent_known_server_count")} servers` }];
  });
}

/** A row for each uplink of a proxy. */
export function uplinkRows(
  instances: readonly Instance[],
  answers: SuiteFacts["answers"],
): SuiteStatus["uplinks"]["rows"] {
  return instances.flatMap((instance) => {
    const samples = answered(answers.get(instanceKey(instance))?.samples) ?? [];
    return samples
      .filter(({ name }) => name === "uplink_proxy_uplink_failed")
      .map(({ labels, value }) => ({ name: instance.name, uplink: labels["uplink"] ?? "", works: value === 0 }));
  });
}

/** A row for each Egress, with its routers. */
export function egressRows({ egresses, routers }: SuiteFacts): SuiteStatus["egresses"]["rows"] {
  const deployments = new Map<string, Deployment>(
    (known(routers) ?? []).map((one) => [`${one.metadata.namespace}/${one.metadata.name}`, one]),
  );
  return (known(egresses) ?? []).map(({ metadata: { namespace = "", name }, spec, status }) => ({
    namespace,
    name,
    ready: deployments.get(`${namespace}/${name}`)?.status?.readyReplicas ?? status?.replicas ?? 0,
    wanted: spec?.replicas ?? 1,
  }));
}

/** The NICs by phase. */
export function nicsOf({ claims }: SuiteFacts): SuiteStatus["nics"] {
  const all = known(claims);
  if (all === undefined) return undefined;
  const phases = new Map<string, number>();
  for (const { status } of all) phases.set(status?.phase ?? "New", (phases.get(status?.phase ?? "New") ?? 0) + 1);
  return { claims: all.length, phases: Object.fromEntries([...phases].sort(([a], [b]) => compare(a, b))) };
}

/** The controllers of the suite by the Lease of their elections. */
export const LEADERS: Readonly<Record<string, readonly string[]>> = {
  "coil-ipam-leader": ["coil-ipam-controller", "coil-controller"],
  "coil-egress-leader": ["coil-egress-controller", "coil-controller"],
  "nic-controller-leader": ["nic-controller"],
};

/** The Leases of elections of the suite. */
export const LEADER_LEASES: readonly string[] = Object.keys(LEADERS);

/**
 * Returns true if a Lease is what is left of a part that was taken out of the cluster: its holder gave it up, none of its controllers is there, and nothing that they
 * serve. Pure.
 */
export function isLeftOver(
  { metadata: { name }, spec }: Lease,
  programs: ReadonlySet<string>,
  served: Readonly<Record<string, Objects<unknown>>>,
): boolean {
  if ((spec?.holderIdentity ?? "") !== "" || LEADERS[name]?.some((program) => programs.has(program))) return false;
  const objects = served[name];
  return objects === undefined || ("value" in objects && (objects.value ?? []).length === 0);
}

/** A row for each election of a leader. */
export function leaderRows(facts: SuiteFacts): SuiteStatus["leaders"]["rows"] {
  const { leases, now, processes, pools, egresses, claims } = facts;
  const programs = new Set([...(known(facts.instances) ?? []), ...processes].map(({ program }) => program));
  const served = { "coil-ipam-leader": pools, "coil-egress-leader": egresses, "nic-controller-leader": claims };
  return (known(leases) ?? [])
    .filter((lease) => LEADER_LEASES.includes(lease.metadata.name) && !isLeftOver(lease, programs, served))
    .map(({ metadata, spec }) => {
      const { holderIdentity: holder = "", renewTime, leaseDurationSeconds = 15 } = spec ?? {};
      const renewed = Date.parse(String(renewTime));
      const ageSeconds = Number.isNaN(renewed) ? undefined : Math.max(0, Math.round((now - renewed) / 1000));
      const isStale = holder === "" || ageSeconds === undefined || ageSeconds > leaseDurationSeconds;
      return { lease: `${metadata.namespace}/${metadata.name}`, holder, ageSeconds, isStale };
    })
    .sort((a, b) => compare(a.lease, b.lease));
}

/** The last warnings that programs of the suite wrote. */
export function errorRows({ events }: SuiteFacts): SuiteStatus["errors"]["rows"] {
  return (known(events) ?? [])
    .map((event) => {
      const { regarding, series, note = "", reason = "", reportingController = "", metadata } = event;
      const { kind = "", namespace, name = "" } = regarding ?? {};
      return {
        time: String(
          series?.lastObservedTime ?? event.eventTime ?? event.deprecatedLastTimestamp ?? metadata.creationTimestamp,
        ),
        program: reportingController,
        object: `${kind} ${namespace === undefined ? "" : `${namespace}/`}${name}`,
        reason,
        note: note.slice(0, 300).replaceAll("\n", " "),
        count: series?.count ?? event.deprecatedCount ?? 1,
      };
    })
    .sort((a, b) => compare(b.time, a.time));
}
