import type { Fact } from "#base/diagnosis";
import {
  egressRows,
  errorRows,
  leaderRows,
  nicsOf,
  policiesOf,
  poolRows,
  requestsOf,
  tunnelRows,
  uplinkRows,
} from "./cluster-rows.ts";
import { type Instance, instanceKey, type SuiteFacts } from "./facts.ts";
import { degradedRow, forwardDropsOf, known, notReadyRow, programRows } from "./program-rows.ts";
import { MAX_ROWS, namesOf, rowsOf, withoutNames } from "./rows.ts";
import type { SuiteStatus } from "./suite-status.ts";

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
