import { printable } from "#base/text";
import type { VpcPort } from "#cloud/vpc";
import type { NicClaim, NicStatus } from "#kube/nic";
import type { NicNode, NodeNic, SwitchPort } from "../audit/state.ts";
import { remedyOf } from "../status/remedies.ts";

/** Routes and rules of a NIC in the words of ip(8). */
export interface NicRouting {
  readonly routes: readonly string[];
  readonly rules: readonly string[];
}

/** The input of {@link explainNics}. */
export interface ExplainNicsInput {
  readonly claim: NicClaim;
  /** The ports of the claim by id; `undefined`: the provider was not asked. */
  readonly ports: ReadonlyMap<string, VpcPort> | undefined;
  /** The answer of the node's `nic-agent`; `undefined`: it was not asked, or it is of another node. */
  readonly node: NicNode | undefined;
  /** The routing that a NIC gets by its claim. */
  readonly planned: (nic: NicStatus) => NicRouting;
  /** The parts that were not read, each with the reason. */
  readonly notes: readonly string[];
}

/** The way of one NIC from the network to the pod. */
export interface NicWay {
  readonly nic: string;
  readonly state: NicStatus["state"];
  readonly reason?: string;
  readonly message?: string;
  readonly remedy?: string;
  readonly port?: {
    readonly id: string;
    readonly isOurs: boolean;
    /** `undefined`: the provider was not asked; `missing`: it does not have the port. */
    readonly status?: VpcPort["status"] | "missing" | undefined;
    readonly networkId?: string | undefined;
    readonly mac?: string | undefined;
    readonly addresses: readonly string[];
    readonly gateways: readonly string[];
    readonly mtu?: number | undefined;
  };
  /** The security groups of the port, by id; if the provider was not asked, those that it was given last, or that the pod asks for. */
  readonly securityGroups: { readonly from: "port" | "claim" | "wish"; readonly groups: readonly string[] };
  readonly binding?: { readonly host: string; readonly vifType: string };
  /** From the switch to the pod; absent: the node was not asked, or has plugged nothing. */
  readonly plugged?: {
    readonly bridge?: string;
    readonly number?: number | undefined;
    readonly devices: readonly string[];
    readonly netns: string;
    readonly differences: readonly string[];
  };
  /** `there`: as the network namespace has it; `planned`: as the claim says. */
  readonly routing: NicRouting & { readonly from: "there" | "planned" };
}

/** The NICs of a pod: ports, security groups as far as ports tell them, binding, devices, routes and rules. */
export interface NicExplanation {
  readonly namespace: string;
  readonly pod: string;
  readonly vpc: string;
  readonly provider: string;
  readonly node?: string;
  readonly nics: readonly NicWay[];
  readonly notes: readonly string[];
}

/** Walks the NICs of a pod from the provider's port to the pod's network namespace. Pure. */
export function explainNics(input: ExplainNicsInput): NicExplanation {
  const { claim, notes } = input;
  const { spec, status, metadata } = claim;
  return {
    namespace: metadata.namespace ?? "",
    pod: spec.podName,
    vpc: spec.vpc,
    provider: spec.provider,
    ...(status?.nodeName === undefined ? {} : { node: status.nodeName }),
    nics: spec.nics.map((wish) => wayOf(wish, input)),
    notes,
  };
}

function wayOf(wish: NicClaim["spec"]["nics"][number], { claim, ports, node, planned }: ExplainNicsInput): NicWay {
  const nic: NicStatus = claim.status?.nics?.find(({ name }) => name === wish.name) ?? {
    name: wish.name,
    state: "Unknown",
  };
  const port = nic.portID === undefined ? undefined : ports?.get(nic.portID);
  const sandbox = node?.sandboxes.find(({ podUid }) => podUid === claim.metadata.name);
  const there = sandbox?.nics.find(({ portId }) => portId === nic.portID);
  const remedy = nic.state === "Ready" ? undefined : remedyOf(nic.reason);
  const asked = wish.securityGroups ?? (wish.securityGroup === undefined ? [] : [wish.securityGroup]);
  return {
    nic: wish.name,
    state: nic.state,
    ...(nic.reason === undefined ? {} : { reason: nic.reason }),
    ...(nic.message === undefined ? {} : { message: nic.message }),
    ...(remedy === undefined ? {} : { remedy }),
    ...(nic.portID === undefined ? {} : { port: portText(nic, nic.portID, port, ports !== undefined) }),
    securityGroups: groupsOf(port, nic.securityGroups, asked),
    ...((nic.host ?? "") === "" ? {} : { binding: { host: nic.host ?? "", vifType: nic.vifType ?? "" } }),
    ...(there === undefined || sandbox === undefined ? {} : { plugged: pluggedOf(there, sandbox.netns, node) }),
    routing:
      there?.link === undefined
        ? { from: "planned", ...planned(nic) }
        : { from: "there", routes: there.link.routes, rules: there.link.rules },
  };
}

function groupsOf(
  port: VpcPort | undefined,
  given: readonly string[] | undefined,
  asked: readonly string[],
): NicWay["securityGroups"] {
  if (port !== undefined) return { from: "port", groups: port.securityGroups };
  return given === undefined ? { from: "wish", groups: asked } : { from: "claim", groups: given };
}

function portText(
  { createdByController, networkID, mac, mtu, ips = [] }: NicStatus,
  id: string,
  port: VpcPort | undefined,
  isAsked: boolean,
): NonNullable<NicWay["port"]> {
  return {
    id,
    isOurs: createdByController === true,
    ...(isAsked ? { status: port?.status ?? "missing" } : {}),
    ...(networkID === undefined ? {} : { networkId: networkID }),
    ...(mac === undefined ? {} : { mac }),
    ...(mtu === undefined ? {} : { mtu }),
    addresses: ips.map(({ ip, prefixLength }) => `${ip}/${prefixLength}`),
    gateways: ips.flatMap(({ gateway }) => gateway ?? []),
  };
}

function pluggedOf(nic: NodeNic, netns: string, node: NicNode | undefined): NonNullable<NicWay["plugged"]> {
  const isOf = ({ device }: SwitchPort): boolean => device === nic.port?.device;
  const row = node?.switches.find(({ ovsdb }) => ovsdb === nic.port?.ovsdb)?.ports.find(isOf);
  return {
    ...(nic.port === undefined ? {} : { bridge: nic.port.bridge, number: row?.ofport }),
    devices: nic.devices.map(({ name }) => name),
    netns,
    differences: nic.differences,
  };
}

/** The answer for people. Pure. */
export function explainNicsText({ namespace, pod, vpc, provider, node, nics, notes }: NicExplanation): string {
  const head = `pod ${namespace}/${pod}: VPC ${vpc} of provider ${provider}, ${node === undefined ? "no node yet" : `on node ${node}`}`;
  const lines = [
    head,
    ...nics.flatMap(nicLines),
    ...(notes.length === 0 ? [] : ["", ...notes.map((one) => `note: ${one}`)]),
  ];
  return `${lines.map(printable).join("\n")}\n`;
}

function nicLines(way: NicWay): string[] {
  const rows: (readonly [string, string])[] = [];
  const add = (name: string, ...texts: readonly string[]): void => {
    for (const [at, text] of texts.entries()) rows.push([at === 0 ? name : "", text]);
  };
  const why = [way.reason, way.message].filter((one) => one !== undefined && one !== "").join(": ");
  if (why !== "" && way.state !== "Ready")
    add("reason", why, ...(way.remedy === undefined ? [] : [`remedy: ${way.remedy}`]));
  add("port", ...portLines(way));
  add("security", securityLine(way.securityGroups));
  add("binding", way.binding === undefined ? "none yet" : `to host ${way.binding.host}, as ${way.binding.vifType}`);
  add("plugged", ...pluggedLines(way.plugged));
  const { from, routes, rules } = way.routing;
  const mark = from === "there" ? "" : " (planned)";
  add(`routes${mark}`, ...(routes.length === 0 ? ["none"] : routes));
  if (rules.length > 0) add(`rules${mark}`, ...rules);
  const width = Math.max(...rows.map(([name]) => name.length));
  return ["", `${way.nic}: ${way.state}`, ...rows.map(([name, text]) => `  ${name.padEnd(width)}  ${text}`)];
}

function portLines({ port }: NicWay): string[] {
  if (port === undefined) return ["none yet"];
  const status =
    port.status === undefined
      ? "the provider was not asked"
      : port.status === "missing"
        ? "the provider does not have it"
        : `${port.status} at the provider`;
  const details = [
    port.addresses.length === 0 ? "no address" : port.addresses.join(", "),
    ...(port.gateways.length === 0 ? [] : [`gateway ${port.gateways.join(", ")}`]),
    ...(port.mac === undefined ? [] : [`MAC ${port.mac}`]),
    ...(port.mtu === undefined ? [] : [`MTU ${port.mtu}`]),
  ];
  return [`${port.id}, ${port.isOurs ? "made by nic-controller" : "of its user"}; ${status}`, details.join("; ")];
}

function securityLine({ from, groups }: NicWay["securityGroups"]): string {
  if (from === "claim" && groups.length > 0)
    return `the port was given ${groups.join(", ")} last; the provider was not asked`;
  if (from !== "port")
    return groups.length === 0
      ? "the pod names no group, so the policy's or the provider's default ones; the provider was not asked"
      : `the pod asks for ${groups.join(", ")}; the provider was not asked`;
  return groups.length === 0
    ? "the port has no groups: the provider filters nothing, unless port security is on, which then drops everything but the port's own addresses"
    : `the port has the groups ${groups.join(", ")}, whose rules the provider has`;
}

function pluggedLines(plugged: NicWay["plugged"]): string[] {
  if (plugged === undefined) return ["not looked at, or nothing is plugged: see the notes"];
  const { bridge, number, devices, netns, differences } = plugged;
  const way = [
    ...(bridge === undefined ? [] : [`${bridge}${number === undefined ? " (not served)" : ` port ${number}`}`]),
    ...devices.toSorted((one, other) => placeOf(one) - placeOf(other)),
    netns,
  ];
  return [way.join(" - "), ...differences.map((text) => `differs: ${text}`)];
}

/** The devices of a NIC from the switch to the pod, by the beginnings of their names (docs/spec/vpc-nics.md#8.2). */
const FROM_SWITCH = ["qvo", "qvb", "qbr", "tap"];

function placeOf(device: string): number {
  return FROM_SWITCH.indexOf(device.slice(0, 3));
}
