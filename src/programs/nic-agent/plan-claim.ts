import { runPath } from "#base/file";
import { Cidr, IpAddress, MacAddress } from "#base/ip";
import { defaultNic, gatewaysOf, isDefaultRoute, PRIMARY_NIC, routeMetric } from "#features/nic";
import type { PlanRequest } from "#features/nic-agent";
import {
  type AlcorPlace,
  alcorDevice,
  deviceNames,
  type NeutronPlace,
  type NicPlan,
  type PlugSettings,
  planRouting,
  type SandboxPlan,
} from "#features/nic-cni";
import { MAX_NICS, type NicClaim, type NicStatus } from "#kube/nic";

/** The default of the wait for a device of Alcor's agent, in milliseconds (docs/spec/vpc-nics.md#9). */
const DEFAULT_PROBE_MS = 3000;

/** What counts where a network's configuration says nothing. */
export interface NodeSettings {
  readonly ovsdb: string;
  readonly bridge: string;
  readonly plugMode: PlugSettings["plugMode"];
  /** `undefined`: root. */
  readonly vmOwnerUid?: number | undefined;
  readonly nsPrefix: string;
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
  const first = defaultNic(nics, chosen) ?? nics[0];
  const settings = settingsOf(call.config, defaults);
  const context = { claim, settings, defaults, containerId: call.containerId, isSecondary };
  const plans = nics.map((nic, index): NicPlan => {
    const plan = planNic(nic, { index, metric: routeMetric(nics, index, first) }, context);
    return nic.name === PRIMARY_NIC && primaryName !== undefined ? { ...plan, name: primaryName } : plan;
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
  let metric = routeMetric([], index, nic);
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
  const gateways = gatewaysOf(nic);
  const routing = planRouting({ addresses, gateways, hostRoutes: routesOf(nic), metric, secondary }, index);
  const place = context.settings.type === "vpc-alcor" ? alcorPlace(nic, context) : neutronPlace(nic, context);
  const isTap = place.kind === "neutron" && place.end === "tap";
  const asked = context.claim.spec.nics.find(({ name }) => name === nic.name);
  return {
    name: nic.name,
    portId: nic.portID ?? "",
    index,
    metric,
    ...(nic.mac === undefined ? {} : { mac: String(MacAddress.parse(nic.mac)) }),
    ...(nic.mtu === undefined || nic.mtu === 0 ? {} : { mtu: nic.mtu }),
    // The machine configures itself.
    addresses: isTap ? [] : addresses,
    routes: isTap ? [] : routing.routes,
    rules: isTap ? [] : routing.rules,
    ...(secondary ? { secondary } : {}),
    // An address of IPv6 that the port does not show is one that the machine makes itself, from advertisements.
    acceptRa: asked?.ipv6Enabled === true && !addresses.some((one) => one.includes(":")),
    place,
  };
}

function settingsOf(config: PlanRequest["call"]["config"], defaults: NodeSettings): PlugSettings {
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
function routesOf({ routes = [] }: NicStatus): readonly { readonly dst: string; readonly via: string }[] {
  return routes
    .filter(({ dst }) => !isDefaultRoute(dst))
    .map(({ dst, via }) => ({ dst: String(Cidr.parse(dst)), via: String(IpAddress.parse(via)) }));
}

function neutronPlace(
  { portID = "", mac, vifDetails = {} }: NicStatus,
  { claim, settings, defaults, containerId }: NicContext,
): NeutronPlace {
  const { plugMode, vmMode, vmOwnerUid, vmMultiQueue, ovsdb, integrationBridge } = settings;
  return {
    kind: "neutron",
    ovsdb: runPath(ovsdb?.replace(/^unix:/, "") ?? defaults.ovsdb),
    bridge: integrationBridge ?? vifDetails.bridgeName ?? defaults.bridge,
    // A port that does not say it may be of an agent that needs the bridge; whether OVN programs the switch, that says itself.
    ...(plugMode === "auto" && vifDetails.ovsHybridPlug === undefined ? { hybridUnlessOvn: true } : {}),
    hybrid: plugMode === "auto" ? vifDetails.ovsHybridPlug !== false : plugMode === "hybrid",
    end: claim.spec.vm !== undefined && vmMode === "tap" ? "tap" : "veth",
    netdev: vifDetails.datapathType === "netdev",
    ...(vmMultiQueue ? { multiQueue: true } : {}),
    ...(vmOwnerUid === undefined ? {} : { ownerUid: vmOwnerUid }),
    externalIds: {
      "iface-id": portID,
      "iface-status": "active",
      ...(mac === undefined ? {} : { "attached-mac": String(MacAddress.parse(mac)) }),
      "vm-uuid": claim.spec.podUID,
      "vm-id": containerId,
    },
  };
}

function alcorPlace({ portID = "", networkID = "", netns, vethName }: NicStatus, { settings }: NicContext): AlcorPlace {
  return {
    kind: "alcor",
    netns: netns ?? `/run/netns/${settings.nsPrefix}${networkID}`,
    device: vethName ?? alcorDevice(portID),
    waitMs: settings.probe_tm_ms === 0 ? DEFAULT_PROBE_MS : settings.probe_tm_ms,
    mizarTuning: settings.mizarTuning,
  };
}

/**
 * The NICs that a node has, as a claim shows them: by the names of the claim, since a runtime may have named the first one otherwise, and with the TAP
 * devices that runtimes of virtual machines take. Pure.
 */
export function shownNics(
  nics: readonly Pick<NicPlan, "name" | "portId" | "place">[],
  { status }: Pick<NicClaim, "status">,
): NonNullable<NonNullable<NicClaim["status"]>["plugged"]>["nics"] {
  const shown = nics.map(({ name, portId, place }) => ({
    name: status?.nics?.find(({ portID }) => portID === portId)?.name ?? name,
    ...(place.kind === "neutron" && place.end === "tap" ? { device: deviceNames(portId).tap } : {}),
  }));
  // A sandbox that is made anew may have those of the one before for a while.
  return [...new Map(shown.map((nic) => [nic.name, nic])).values()];
}
