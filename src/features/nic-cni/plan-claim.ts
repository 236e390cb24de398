import { Cidr, IpAddress, MacAddress } from "#base/ip";
import { MAX_NICS, type NicClaim, type NicStatus } from "#kube/nic";
import { type DeviceDefaults, deviceOf, type NicDevice } from "./device.ts";
import { DEVICES } from "./devices.ts";
import { planRouting } from "./routing.ts";
import type { NicPlan, PlugSettings, SandboxPlan } from "./types.ts";

/** The rules of a pod's NICs that guest and sandbox share; the program passes them in. */
export interface PodRouting {
  /** The name of the NIC whose address is the pod's. */
  readonly primary: string;
  /** The NIC with the default route, of which `chosen` is the one that the pod names. */
  readonly defaultNic: (nics: readonly NicStatus[], chosen: string | undefined) => NicStatus | undefined;
  readonly gatewaysOf: (nic: NicStatus) => { readonly 4: string | undefined; readonly 6: string | undefined };
  /** The metric of the default routes of the NIC at an index. */
  readonly routeMetric: (nics: readonly NicStatus[], index: number, first: NicStatus | undefined) => number;
  readonly isDefaultRoute: (dst: string) => boolean;
}

/** The values that count where a network's configuration says nothing. */
export interface NodeSettings extends DeviceDefaults {
  readonly plugMode: PlugSettings["plugMode"];
  /** `undefined`: root. */
  readonly vmOwnerUid?: number | undefined;
  readonly nsPrefix: string;
  readonly routing: PodRouting;
  /** The kinds of devices that are plugged. Default: those of this suite. */
  readonly devices?: readonly NicDevice[] | undefined;
}

/** The part of a network's configuration that concerns NICs; the node's settings count for what it does not say. */
export type NetworkConfig = Pick<PlugSettings, "type" | "vmMode" | "vmMultiQueue" | "probe_tm_ms" | "mizarTuning"> & {
  /** The name of the network. */
  readonly name: string;
  readonly plugMode?: PlugSettings["plugMode"] | undefined;
  readonly vmOwnerUid?: number | undefined;
  readonly ovsdb?: string | undefined;
  readonly integrationBridge?: string | undefined;
  readonly nsPrefix?: string | undefined;
};

/** The claim and the call of CNI that a plan is made of. */
export interface PlanRequest {
  readonly claim: NicClaim;
  /** In the order of the pod. */
  readonly nics: readonly NicStatus[];
  readonly call: {
    readonly containerId: string;
    readonly netns: string;
    readonly ifname: string;
    readonly config: NetworkConfig;
  };
  /** The name of the primary NIC in the sandbox, if the call gives it another one. */
  readonly primaryName: string | undefined;
  /** True: another network has made `eth0` of the sandbox, as with Multus. */
  readonly isSecondary: boolean;
}

/**
 * The plan of a pod's NICs, from its claim and the network's configuration. Pure. The state of a claim is of a provider: `IpParseError` is thrown
 * for addresses that are none.
 */
export function planClaim(
  { claim, nics, call, primaryName, isSecondary }: PlanRequest,
  defaults: NodeSettings,
): SandboxPlan {
  const chosen = claim.spec.nics.find(({ defaultRoute }) => defaultRoute === true)?.name;
  // The device of Alcor's agent may bring a gateway that the claim does not know.
  const { routing } = defaults;
  const first = routing.defaultNic(nics, chosen) ?? nics[0];
  const settings = settingsOf(call.config, defaults);
  const context = { claim, settings, defaults, containerId: call.containerId, isSecondary };
  const plans = nics.map((nic, index): NicPlan => {
    const plan = planNic(nic, { index, metric: routing.routeMetric(nics, index, first) }, context);
    return nic.name === routing.primary && primaryName !== undefined ? { ...plan, name: primaryName } : plan;
  });
  const { nameservers, search } = nics[0]?.dns ?? {};
  return {
    containerId: call.containerId,
    podUid: claim.spec.podUID,
    network: call.config.name,
    ...(call.ifname === "" ? {} : { ifname: call.ifname }),
    netns: call.netns,
    nics: plans,
    dns: { ...(nameservers === undefined ? {} : { nameservers }), ...(search === undefined ? {} : { search }) },
    settings,
  };
}

/**
 * The plan of a NIC that is added to a sandbox that runs: it gets a table of its own that no NIC of the sandbox has, and its default route comes after
 * theirs. A text says why it cannot be added. Pure. Throws like {@link planClaim}.
 */
export function planAdded(
  plan: SandboxPlan,
  claim: NicClaim,
  nic: NicStatus,
  defaults: NodeSettings,
): NicPlan | string {
  const { settings, nics, containerId } = plan;
  if (settings === undefined)
    return "the sandbox was made by an agent that could not add NICs; it has the NIC when it is made anew";
  let index = 1;
  while (nics.some((one) => one.index === index)) index += 1;
  if (index >= MAX_NICS) return `the sandbox has ${nics.length} NICs already`;
  let metric = defaults.routing.routeMetric([], index, nic);
  while (nics.some((one) => one.metric === metric)) metric += 1;
  const isSecondary = nics.some(({ secondary }) => secondary === true);
  return planNic(nic, { index, metric }, { claim, settings, defaults, containerId, isSecondary });
}

interface NicContext {
  readonly claim: NicClaim;
  readonly settings: PlugSettings;
  readonly defaults: NodeSettings;
  readonly containerId: string;
  readonly isSecondary: boolean;
}

function planNic(
  nic: NicStatus,
  { index, metric }: { readonly index: number; readonly metric: number },
  context: NicContext,
): NicPlan {
  const addresses = (nic.ips ?? []).map(({ ip, prefixLength }) => `${IpAddress.parse(ip)}/${prefixLength}`);
  const secondary = context.isSecondary;
  const { defaults, settings } = context;
  const gateways = defaults.routing.gatewaysOf(nic);
  const hostRoutes = routesOf(nic, defaults.routing);
  const routing = planRouting({ addresses, gateways, hostRoutes, metric, secondary }, index);
  const asked = context.claim.spec.nics.find(({ name }) => name === nic.name);
  const device = deviceOfType(settings.type, defaults);
  const plan: NicPlan = {
    name: nic.name,
    portId: nic.portID ?? "",
    index,
    metric,
    ...(nic.mac === undefined ? {} : { mac: String(MacAddress.parse(nic.mac)) }),
    ...(nic.mtu === undefined || nic.mtu === 0 ? {} : { mtu: nic.mtu }),
    addresses,
    ...routing,
    ...(secondary ? { secondary } : {}),
    // An address of IPv6 that the port does not show is one that the machine makes itself, from advertisements.
    acceptRa: asked?.ipv6Enabled === true && !addresses.some((one) => one.includes(":")),
    place: device.plan(nic, context),
  };
  // The machine configures itself.
  return device.explain(plan).isConfigured ? plan : { ...plan, addresses: [], routes: [], rules: [] };
}

function deviceOfType(wanted: string, { devices = DEVICES }: Pick<NodeSettings, "devices">): NicDevice {
  const found = devices.find(({ type }) => type === wanted);
  if (found === undefined) throw new Error(`no kind of device is that of networks of type ${wanted}`);
  return found;
}

function settingsOf(config: NetworkConfig, defaults: NodeSettings): PlugSettings {
  const { type, vmMode, vmMultiQueue, probe_tm_ms, mizarTuning, ovsdb, integrationBridge } = config;
  const { plugMode = defaults.plugMode, vmOwnerUid = defaults.vmOwnerUid, nsPrefix = defaults.nsPrefix } = config;
  return {
    ...{ type, plugMode, vmMode, vmMultiQueue, nsPrefix, probe_tm_ms, mizarTuning },
    ...(vmOwnerUid === undefined ? {} : { vmOwnerUid }),
    ...(ovsdb === undefined ? {} : { ovsdb }),
    ...(integrationBridge === undefined ? {} : { integrationBridge }),
  };
}

/** The routes of a NIC's subnets. A default route is one of its gateways already. */
function routesOf(
  { routes = [] }: NicStatus,
  { isDefaultRoute }: PodRouting,
): readonly { readonly dst: string; readonly via: string }[] {
  return routes
    .filter(({ dst }) => !isDefaultRoute(dst))
    .map(({ dst, via }) => ({ dst: String(Cidr.parse(dst)), via: String(IpAddress.parse(via)) }));
}

/**
 * The NICs that a node has, as a claim shows them: by the names of the claim, since a runtime may have named the first one otherwise, and with the TAP
 * devices that runtimes of virtual machines take. Pure.
 */
export function shownNics(
  nics: readonly NicPlan[],
  { status }: Pick<NicClaim, "status">,
  devices: readonly NicDevice[] = DEVICES,
): NonNullable<NonNullable<NicClaim["status"]>["plugged"]>["nics"] {
  const shown = nics.map((nic) => {
    const { isConfigured, hostDevice } = deviceOf(nic, devices).explain(nic);
    return {
      name: status?.nics?.find(({ portID }) => portID === nic.portId)?.name ?? nic.name,
      ...(isConfigured || hostDevice === undefined ? {} : { device: hostDevice }),
    };
  });
  // A sandbox that is made anew may have those of the one before for a while.
  return [...new Map(shown.map((nic) => [nic.name, nic])).values()];
}
