import { Cidr, IpAddress, MacAddress } from "#base/ip";
import { defaultNic, gatewaysOf, isDefaultRoute, routeMetric } from "#features/nic";
import type { PlanRequest } from "#features/nic-agent";
import {
  type AlcorPlace,
  alcorDevice,
  type NeutronPlace,
  type NicPlan,
  planRouting,
  type SandboxPlan,
} from "#features/nic-cni";
import type { NicStatus } from "#kube/nic";

/** The default of the wait for a device of Alcor's agent, in milliseconds (docs/spec/vpc-nics.md#9). */
const DEFAULT_PROBE_MS = 3000;

/** Where the switch of the node is. */
export interface SwitchPlace {
  readonly ovsdb: string;
  readonly bridge: string;
}

/**
 * The plan of a pod's NICs, from its claim and the network's configuration. Pure. The state of a claim is of a provider: `IpParseError` is thrown
 * for addresses that are none.
 */
export function planClaim({ claim, nics, call, primaryName }: PlanRequest, defaults: SwitchPlace): SandboxPlan {
  const chosen = claim.spec.nics.find(({ defaultRoute }) => defaultRoute === true)?.name;
  // The device of Alcor's agent may bring a gateway that the claim does not know.
  const first = defaultNic(nics, chosen) ?? nics[0];
  const plans = nics.map((nic, index): NicPlan => {
    const addresses = (nic.ips ?? []).map(({ ip, prefixLength }) => `${IpAddress.parse(ip)}/${prefixLength}`);
    const metric = routeMetric(nics, index, first);
    const routing = planRouting({ addresses, gateways: gatewaysOf(nic), hostRoutes: routesOf(nic), metric }, index);
    const place =
      call.config.type === "vpc-alcor" ? alcorPlace(nic, call) : neutronPlace(nic, { claim, call }, defaults);
    const isTap = place.kind === "neutron" && place.end === "tap";
    const asked = claim.spec.nics[index];
    return {
      name: index === 0 ? (primaryName ?? nic.name) : nic.name,
      portId: nic.portID ?? "",
      index,
      metric,
      ...(nic.mac === undefined ? {} : { mac: String(MacAddress.parse(nic.mac)) }),
      ...(nic.mtu === undefined || nic.mtu === 0 ? {} : { mtu: nic.mtu }),
      // The machine configures itself.
      addresses: isTap ? [] : addresses,
      routes: isTap ? [] : routing.routes,
      rules: isTap ? [] : routing.rules,
      // An address of IPv6 that the port does not show is one that the machine makes itself, from advertisements.
      acceptRa: asked?.ipv6Enabled === true && !addresses.some((one) => one.includes(":")),
      place,
    };
  });
  const { nameservers, search } = nics[0]?.dns ?? {};
  return {
    containerId: call.containerId,
    podUid: claim.spec.podUID,
    network: call.config.name,
    netns: call.netns,
    nics: plans,
    dns: { ...(nameservers === undefined ? {} : { nameservers }), ...(search === undefined ? {} : { search }) },
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
  { claim, call }: Pick<PlanRequest, "claim" | "call">,
  defaults: SwitchPlace,
): NeutronPlace {
  const { plugMode, vmMode, vmOwnerUid, vmMultiQueue, ovsdb, integrationBridge } = call.config;
  return {
    kind: "neutron",
    ovsdb: ovsdb?.replace(/^unix:/, "") ?? defaults.ovsdb,
    bridge: integrationBridge ?? vifDetails.bridgeName ?? defaults.bridge,
    // A port that does not say it may be of an agent that needs the bridge.
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
      "vm-id": call.containerId,
    },
  };
}

function alcorPlace(
  { portID = "", networkID = "", netns, vethName }: NicStatus,
  { config }: PlanRequest["call"],
): AlcorPlace {
  return {
    kind: "alcor",
    netns: netns ?? `/run/netns/${config.nsPrefix}${networkID}`,
    device: vethName ?? alcorDevice(portID),
    waitMs: config.probe_tm_ms === 0 ? DEFAULT_PROBE_MS : config.probe_tm_ms,
    mizarTuning: config.mizarTuning,
  };
}
