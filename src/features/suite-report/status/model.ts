import type { Fact } from "#base/diagnosis";
import { ExpectedError } from "#base/errors";
import type { Deployment, Lease } from "#kube/client";
import { maxBlocks, POOL_LABEL, parsePool } from "#kube/coil";
import { sumOf } from "../answers/exposition.ts";
import { type ForwardDrop, forwardDrops } from "../forward-drops.ts";
import { judgePolicies, type PolicyVerdict } from "../policies.ts";
import { type Instance, type InstanceAnswer, instanceKey, type Objects, type SuiteFacts } from "./facts.ts";

/** The maximum number of rows of each list; further ones are counted. */
export const MAX_ROWS = 20;
/** The maximum number of programs that are named in a row. */
const MAX_NAMES = 5;

/** The metrics that a report reads. */
export const STATUS_METRICS: ReadonlySet<string> = new Set([
  "isthmus_build_info",
  "coil_coild_addresses",
  "konnectivity_network_proxy_server_ready_backend_connections",
  "konnectivity_network_proxy_server_established_connections",
  "konnectivity_network_proxy_agent_open_server_connections",
  "konnectivity_network_proxy_agent_known_server_count",
  "uplink_proxy_uplink_failed",
]);

/** Some rows of a list, and the number of rows that are not shown. */
export interface Rows<T> {
  readonly rows: readonly T[];
  readonly more: number;
}

/** One program in one version. */
export interface ProgramRow {
  readonly program: string;
  /** By its own metric, else by the tag of its image; `unknown` without either. */
  readonly version: string;
  readonly instances: number;
  readonly ready: number;
  readonly nodes: number;
  readonly restarts: number;
  /** How many of them answered this report. */
  readonly asked: number;
}

/** A program that is not ready, or a part of which does not work. */
export interface NotReadyRow {
  readonly program: string;
  readonly name: string;
  readonly node: string;
  readonly why: string;
}

/** The status of the whole suite: the output of `isthmus status --json`. */
export interface SuiteStatus {
  /** True if everything that was found is ready, and the pods could be read. */
  readonly ready: boolean;
  /** RFC 3339. */
  readonly time: string;
  readonly server: string;
  readonly nodes: { readonly total: number; readonly ready: number; readonly kubelets: readonly string[] } | undefined;
  readonly programs: readonly ProgramRow[];
  readonly notReady: Rows<NotReadyRow>;
  /** Programs that are ready, and have parts that do not work. */
  readonly degraded: Rows<NotReadyRow>;
  /** Packet filters of this machine that drop what it forwards for pods; `undefined` where no coild makes links here, or they could not be read. */
  readonly forwardDrops: Rows<ForwardDrop> | undefined;
  readonly pools: Rows<{
    readonly name: string;
    readonly blocks: number;
    /** `undefined` for a pool whose spec cannot be read. */
    readonly maxBlocks: number | undefined;
    /** Of the coilds that answered. */
    readonly usedAddresses: number | undefined;
    readonly freeAddresses: number | undefined;
  }>;
  readonly requests: { readonly waiting: number; readonly failed: number } | undefined;
  readonly services: { readonly services: number; readonly slices: number } | undefined;
  /** What became of the NetworkPolicies; `undefined` without any. */
  readonly networkPolicies: { readonly state: PolicyVerdict["state"]; readonly text: string } | undefined;
  /** The links of the tunnel, of the programs that answered. */
  readonly tunnel: Rows<{
    readonly name: string;
    readonly program: string;
    readonly links: number;
    readonly text: string;
  }>;
  readonly uplinks: Rows<{ readonly name: string; readonly uplink: string; readonly works: boolean }>;
  readonly egresses: Rows<{
    readonly namespace: string;
    readonly name: string;
    readonly ready: number;
    readonly wanted: number;
  }>;
  readonly nics: { readonly claims: number; readonly phases: Readonly<Record<string, number>> } | undefined;
  readonly leaders: Rows<{
    readonly lease: string;
    readonly holder: string;
    readonly ageSeconds: number | undefined;
    readonly isStale: boolean;
  }>;
  readonly errors: Rows<{
    readonly time: string;
    readonly program: string;
    readonly object: string;
    readonly reason: string;
    readonly note: string;
    readonly count: number;
  }>;
  /** What could not be read, with the reason: mostly a right that is missing. */
  readonly notRead: readonly { readonly what: string; readonly why: string }[];
}

/** The status of the suite by what was read. Pure. */
export function suiteStatus(facts: SuiteFacts): SuiteStatus {
  const instances = [...(known(facts.instances) ?? []), ...facts.processes];
  const notReady = instances.flatMap((instance) => notReadyRow(instance, facts.answers));
  const egresses = egressRows(facts);
  const leaders = leaderRows(facts);
  const short = egresses.filter(({ ready, wanted }) => ready < wanted);
  const isReady =
    "value" in facts.instances && notReady.length + short.length === 0 && !leaders.some(({ isStale }) => isStale);
  const nodes = known(facts.nodes);
  return {
    ready: isReady,
    time: new Date(facts.now).toISOString(),
    server: facts.server,
    nodes: nodes && {
      total: nodes.length,
      ready: nodes.filter((node) => node.isReady).length,
      kubelets: [...new Set(nodes.map(({ kubelet }) => kubelet).filter((text) => text !== ""))].sort(),
    },
    programs: programRows(instances, facts.answers),
    notReady: rowsOf(notReady),
    degraded: rowsOf(instances.flatMap((instance) => degradedRow(instance, facts.answers))),
    forwardDrops: forwardDropsOf(facts),
    pools: rowsOf(poolRows(facts, instances)),
    requests: requestsOf(facts),
    services:
      "value" in facts.services && "value" in facts.slices
        ? { services: facts.services.value, slices: facts.slices.value }
        : undefined,
    networkPolicies: policiesOf(facts),
    tunnel: rowsOf(tunnelRows(instances, facts.answers)),
    uplinks: rowsOf(uplinkRows(instances, facts.answers)),
    // Those with too few routers are shown first.
    egresses: rowsOf([...short, ...egresses.filter((one) => !short.includes(one))]),
    nics: nicsOf(facts),
    leaders: rowsOf(leaders),
    errors: rowsOf(errorRows(facts)),
    notRead: notReadOf(facts, instances),
  };
}

function rowsOf<T>(all: readonly T[]): Rows<T> {
  return { rows: all.slice(0, MAX_ROWS), more: Math.max(0, all.length - MAX_ROWS) };
}

function known<T>(fact: Fact<T>): T | undefined {
  return "value" in fact ? fact.value : undefined;
}

function answered<T>(fact: Fact<T> | undefined): T | undefined {
  return fact === undefined ? undefined : known(fact);
}

function versionOf(instance: Instance, answers: SuiteFacts["answers"]): string {
  const samples = answered(answers.get(instanceKey(instance))?.samples) ?? [];
  return samples.find(({ name }) => name === "isthmus_build_info")?.labels["version"] ?? instance.tag ?? "unknown";
}

function programRows(instances: readonly Instance[], answers: SuiteFacts["answers"]): readonly ProgramRow[] {
  const groups = Map.groupBy(instances, (one) => `${one.program} ${versionOf(one, answers)}`);
  return Array.from(groups, ([key, group]): ProgramRow => {
    const [program = "", version = ""] = key.split(" ");
    return {
      program,
      version,
      instances: group.length,
      ready: group.filter((one) => notReadyRow(one, answers).length === 0).length,
      nodes: new Set(group.map(({ node }) => node).filter((node) => node !== "")).size,
      restarts: group.reduce((sum, { restarts }) => sum + restarts, 0),
      asked: group.filter((one) => isAnswered(answers.get(instanceKey(one)))).length,
    };
  }).sort((a, b) => compare(`${a.program} ${a.version}`, `${b.program} ${b.version}`));
}

function isAnswered(answer: InstanceAnswer | undefined): boolean {
  return answered(answer?.readiness) !== undefined || answered(answer?.samples) !== undefined;
}

function forwardDropsOf({ forward }: SuiteFacts): SuiteStatus["forwardDrops"] {
  const findings = answered(forward);
  return findings === undefined ? undefined : rowsOf(forwardDrops(findings));
}

/** The parts of a program that do not work, as text. */
function faultyParts(instance: Instance, answers: SuiteFacts["answers"]): readonly string[] {
  const { parts = [] } = answered(answers.get(instanceKey(instance))?.readiness) ?? {};
  return parts.filter(({ ok }) => !ok).map(({ name, text }) => `${name} ${text}`);
}

function degradedRow(instance: Instance, answers: SuiteFacts["answers"]): readonly NotReadyRow[] {
  const parts = faultyParts(instance, answers);
  if (parts.length === 0 || notReadyRow(instance, answers).length > 0) return [];
  const { program, name, node } = instance;
  return [{ program, name, node, why: parts.join("; ") }];
}

function notReadyRow(instance: Instance, answers: SuiteFacts["answers"]): readonly NotReadyRow[] {
  const readiness = answered(answers.get(instanceKey(instance))?.readiness);
  const isReady = instance.isReady && readiness?.isReady !== false;
  if (isReady) return [];
  const why = [...(instance.reason === "" ? [] : [instance.reason]), ...faultyParts(instance, answers)].join("; ");
  const { program, name, node } = instance;
  return [{ program, name, node, why: why === "" ? "it says that it is not ready" : why }];
}

function poolRows(facts: SuiteFacts, instances: readonly Instance[]): SuiteStatus["pools"]["rows"] {
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

function requestsOf({ requests }: SuiteFacts): SuiteStatus["requests"] {
  const all = known(requests);
  if (all === undefined) return undefined;
  const failed = all.filter(({ status }) =>
    status?.conditions?.some(({ type, status: is }) => type === "Failed" && is === "True"),
  );
  const waiting = all.filter(({ status }) => (status?.conditions ?? []).length === 0);
  return { waiting: waiting.length, failed: failed.length };
}

function policiesOf({ policies, nodes }: SuiteFacts): SuiteStatus["networkPolicies"] {
  const found = known(policies);
  return found === undefined || found.policies === 0 ? undefined : judgePolicies(found, known(nodes)?.length);
}

function tunnelRows(instances: readonly Instance[], answers: SuiteFacts["answers"]): SuiteStatus["tunnel"]["rows"] {
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

function uplinkRows(instances: readonly Instance[], answers: SuiteFacts["answers"]): SuiteStatus["uplinks"]["rows"] {
  return instances.flatMap((instance) => {
    const samples = answered(answers.get(instanceKey(instance))?.samples) ?? [];
    return samples
      .filter(({ name }) => name === "uplink_proxy_uplink_failed")
      .map(({ labels, value }) => ({ name: instance.name, uplink: labels["uplink"] ?? "", works: value === 0 }));
  });
}

function egressRows({ egresses, routers }: SuiteFacts): SuiteStatus["egresses"]["rows"] {
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

function nicsOf({ claims }: SuiteFacts): SuiteStatus["nics"] {
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

function leaderRows(facts: SuiteFacts): SuiteStatus["leaders"]["rows"] {
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

function errorRows({ events }: SuiteFacts): SuiteStatus["errors"]["rows"] {
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

function notReadOf(facts: SuiteFacts, instances: readonly Instance[]): SuiteStatus["notRead"] {
  const parts: readonly (readonly [what: string, fact: Fact<unknown>])[] = [
    ["Nodes", facts.nodes],
    ["Pods", facts.instances],
    ["AddressPools", facts.pools],
    ["AddressBlocks", facts.blocks],
    ["BlockRequests", facts.requests],
    ["Egresses", facts.egresses],
    ["Deployments of routers", facts.routers],
    ["Services", facts.services],
    ["EndpointSlices", facts.slices],
    ["NetworkPolicies", facts.policies],
    ["NicClaims", facts.claims],
    ["Leases", facts.leases],
    ["Events", facts.events],
    ...(facts.forward === undefined ? [] : [["packet filters of this machine", facts.forward] as const]),
  ];
  const unread = parts.flatMap(([what, fact]) => ("fault" in fact ? [{ what, why: fact.fault }] : []));
  const faults = new Map<string, { readonly name: string; readonly fault: string }[]>();
  let unasked = 0;
  for (const instance of instances) {
    const answer = facts.answers.get(instanceKey(instance));
    if (answer === undefined && instance.isReady) unasked += 1;
    // Both mostly fail for the same reason.
    const fault = [answer?.readiness, answer?.samples].find((fact) => fact !== undefined && "fault" in fact);
    if (fault === undefined || !("fault" in fault)) continue;
    // One right that is missing is one row, and not one for each pod.
    const key = `${instance.program}: ${withoutNames(fault.fault)}`;
    faults.set(key, [...(faults.get(key) ?? []), { name: instance.name, fault: fault.fault }]);
  }
  const answers = Array.from(faults.values(), (all) => ({
    what: all.length === 1 ? "answer of a program" : `answers of programs (${all.length})`,
    why: `${namesOf(all)}: ${all[0]?.fault}`,
  }));
  return [
    ...unread,
    ...answers.slice(0, MAX_ROWS),
    ...(unasked === 0
      ? []
      : [{ what: `answers of ${unasked} ready programs`, why: "a report asks a limited number of them" }]),
  ];
}

/** All of a few; of many the first, and how many more. */
function namesOf(all: readonly { readonly name: string }[]): string {
  const names = all.slice(0, MAX_NAMES).map(({ name }) => name);
  const more = all.length - names.length;
  return `${names.join(", ")}${more === 0 ? "" : ` and ${more} more`}`;
}

function withoutNames(text: string): string {
  return text.replaceAll(/"[^"]*"?|[a-z0-9-]+(?:\/[a-z0-9.:/-]+)?/g, (word) =>
    word.startsWith('"') || word.includes("/") ? "_" : word.replaceAll(/\d+/g, "_"),
  );
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
