import { checksOf, type DoctorCheck, type Fact } from "#base/diagnosis";
import { isOvn, type OvsBridge } from "#cloud/ovsdb";
import type { NicClaim } from "#kube/nic";
import type { NicNode } from "../audit/state.ts";

/** The facts of the node on which a diagnosis runs. */
export interface NodeReport {
  /** The answer of `nic-agent`. */
  readonly agent: Fact<NicNode>;
  readonly ovsdb: string;
  readonly bridges: Fact<readonly OvsBridge[]>;
  /** `external_ids` of the switch; empty if they could not be read. */
  readonly switchIds: Readonly<Record<string, string>>;
  /** The number of flows of bridges by their names, of those that the provider's agent is connected to; with OVN of the integration bridge. */
  readonly flows: ReadonlyMap<string, Fact<number>>;
  readonly integrationBridge: string;
  /** The Node's own name for providers, and where it comes from; `undefined`: the API server was not asked or the Node is not there. */
  readonly host: Fact<{ readonly node: string; readonly providerHost: string | undefined }> | undefined;
  /** The names of this machine: with and without its domain. */
  readonly machine: readonly string[];
  /** The NicClaims of the node, if they could be read. */
  readonly claims: Fact<readonly NicClaim[]> | undefined;
}

/** Judges a node: its nic-agent, the switch, the provider's agent as far as the switch shows it, and its name at the provider. Pure. */
export function judgeNode(report: NodeReport): DoctorCheck[] {
  return [...judgeNicAgent(report), ...judgeSwitch(report), ...judgeHostName(report)];
}

function judgeNicAgent({ agent }: NodeReport): DoctorCheck[] {
  const { ok, wrong } = checksOf("nic-agent");
  if ("fault" in agent) return [wrong(`does not answer: ${agent.fault}`, "start it, and look at its log")];
  const { node, sandboxes, claims } = agent.value;
  return [ok(`answers as node ${node}, with ${claims.length} NicClaims and the NICs of ${sandboxes.length} sandboxes`)];
}

/** Returns true if pods of the node have, or wait for, ports of Open vSwitch; what is not known counts as such. */
function usesSwitch({ agent, claims }: NodeReport): boolean {
  if ("fault" in agent) return true;
  if (agent.value.sandboxes.some(({ nics }) => nics.some(({ port }) => port !== undefined))) return true;
  if (claims === undefined || "fault" in claims) return agent.value.claims.length > 0;
  return claims.value.some(({ status }) => status?.nics?.some(({ vifType }) => vifType === "ovs"));
}

/** Without pods that need it a node may have no switch, or one of others: `nic-agent` is ready there, and a doctor only warns. */
function judgeSwitch(report: NodeReport): DoctorCheck[] {
  const { agent, bridges, flows, integrationBridge, ovsdb, switchIds } = report;
  const programmer = isOvn(switchIds) ? OVN : ML2_OVS;
  const { ok, warning, wrong } = checksOf("Open vSwitch");
  const isUsed = usesSwitch(report);
  const missing = (text: string, remedy: string): DoctorCheck =>
    isUsed
      ? wrong(text, remedy)
      : warning(
          `${text}; no pod here has or awaits NICs of it, and none could get them`,
          `${remedy}; or keep such pods off this node`,
        );
  if ("fault" in bridges)
    return [
      missing(
        `its database at ${ovsdb} does not answer: ${bridges.fault}`,
        "start ovsdb-server and ovs-vswitchd (service openvswitch-switch)",
      ),
    ];
  const found: DoctorCheck[] = [ok(`its database answers, with ${bridges.value.length} bridges`)];
  const plans =
    "value" in agent ? agent.value.sandboxes.flatMap(({ nics }) => nics.flatMap(({ port }) => port ?? [])) : [];
  const wanted = new Set([
    integrationBridge,
    ...plans.filter((one) => one.ovsdb === ovsdb).map(({ bridge }) => bridge),
  ]);
  for (const name of wanted) {
    const bridge = bridges.value.find((one) => one.name === name);
    if (bridge === undefined) {
      const names = bridges.value.map((one) => one.name).join(", ");
      found.push(
        missing(
          `there is no integration bridge ${name}; it has ${names === "" ? "none" : names}`,
          `start the provider's agent (${programmer.name}), which makes it; or give --integration-bridge its name`,
        ),
      );
    } else if (bridge.controllers.length === 0 && programmer === OVN)
      // It uses the bridge's own socket, so nothing in the database tells whether it is connected: flows do.
      found.push(ok(`bridge ${name} is set up for OVN (ovn-remote)`), ...judgeFlows(name, flows.get(name), programmer));
    else if (bridge.controllers.length === 0)
      found.push(
        warning(
          `bridge ${name} has no controller: the provider's agent has never run here, or does not use OpenFlow`,
          "look whether neutron-openvswitch-agent runs",
        ),
      );
    else if (bridge.controllers.every(({ isConnected }) => !isConnected))
      found.push(
        wrong(
          `the provider's agent is dead: nobody answers at ${bridge.controllers.map(({ target }) => target).join(", ")}, the controller of bridge ${name}`,
          "start neutron-openvswitch-agent, and look at its log",
        ),
      );
    else
      found.push(
        ok(`bridge ${name} is connected to the provider's agent`),
        ...judgeFlows(name, flows.get(name), programmer),
      );
  }
  return found;
}

/** The program that makes the flows of a switch. */
interface Programmer {
  readonly name: string;
  /** The remedy where it has made none. */
  readonly remedy: string;
}

const ML2_OVS: Programmer = {
  name: "neutron-openvswitch-agent",
  remedy: "restart neutron-openvswitch-agent, and have the service manager do so whenever Open vSwitch starts again",
};
const OVN: Programmer = {
  name: "ovn-controller",
  remedy:
    "start ovn-controller (service ovn-host), and look at its log: whether it reaches the southbound database of ovn-remote (ovn-appctl -t ovn-controller connection-status)",
};

/** A connection says little: an agent that stands still after a restart of the switch keeps it, while the bridge forwards nothing. */
function judgeFlows(name: string, flows: Fact<number> | undefined, programmer: Programmer): DoctorCheck[] {
  const { wrong, unknown } = checksOf("Open vSwitch");
  if (flows === undefined) return [];
  if ("fault" in flows) return [unknown(`the flows of bridge ${name} cannot be counted: ${flows.fault}`)];
  if (flows.value > 0) return [];
  return [
    wrong(
      `bridge ${name} has no flows, so it forwards nothing: the provider's agent has made none since the switch started`,
      programmer.remedy,
    ),
  ];
}

function judgeHostName({ host, machine, claims, switchIds }: NodeReport): DoctorCheck[] {
  if (host === undefined) return [];
  const { ok, warning, wrong, unknown } = checksOf("provider-host");
  if ("fault" in host) return [unknown(`the Node cannot be read: ${host.fault}`)];
  const { node, providerHost } = host.value;
  const name = providerHost ?? node;
  const said =
    providerHost === undefined ? `the name of the Node, ${name}` : `the annotation isthmus.dev/provider-host, ${name}`;
  const statuses =
    claims !== undefined && "value" in claims ? claims.value.flatMap(({ status }) => status?.nics ?? []) : [];
  const refused = statuses.find(({ reason }) => reason === "BindingFailed");
  const remedy = `kubectl annotate node ${node} --overwrite isthmus.dev/provider-host=${machine[0] ?? "HOST"} (${isOvn(switchIds) ? "the chassis's name: external_ids:hostname of table Open_vSwitch" : "the value of host in the agent's configuration"}; by default the machine's name)`;
  if (refused !== undefined)
    return [wrong(`the provider does not bind ports to ${said}: ${refused.message ?? "BindingFailed"}`, remedy)];
  const bound = statuses.some((nic) => nic.host === name && nic.state === "Ready");
  if (bound) return [ok(`ports are bound to ${said}, and active`)];
  if (machine.includes(name)) return [ok(`${said}, is a name of this machine`)];
  return [
    warning(
      `${said}, is not a name of this machine (${machine.join(", ")}): unless the agent's configuration has host = ${name}, ports are not bound`,
      remedy,
    ),
  ];
}
