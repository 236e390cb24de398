import { runPath } from "#base/file";
import { MacAddress } from "#base/ip";
import type { NicStatus } from "#kube/nic";
import {
  type DeviceContext,
  type ExplainedNic,
  type NicDevice,
  type PlugBed,
  type PrepareBed,
  refuseTaken,
} from "../device.ts";
import { deviceNames } from "../names.ts";
import { openHost } from "../namespaces.ts";
import { sandboxDifferences } from "../sandbox.ts";
import { strays } from "./find.ts";
import { makeStep, neutronDifferences, neutronSteps, removeNeutronNic, switchDevice } from "./make.ts";
import { type NeutronNic, type NeutronPlace, neutronPlace } from "./place.ts";
import { atSwitches, removeObstacles } from "./prepare.ts";

/** Ports of Open vSwitch, of ML2/OVS and of OVN: a veth or a TAP device, with a Linux bridge before the switch or without (docs/spec/vpc-nics.md#8.3). */
export const ovsDevice: NicDevice<NeutronPlace> = {
  kind: "neutron",
  type: "vpc-neutron",
  placeSchema: neutronPlace,
  awaitsActive: true,
  hasSwitch: true,
  plan,
  prepare,
  plug,
  async unplug(nic, { host, switchOf, containerId }, options) {
    await removeNeutronNic({ host, ovs: switchOf(nic.place.ovsdb), containerId }, nic, options);
    return "removed";
  },
  inspect: (nic, bed, options) => neutronDifferences({ ...bed, ovs: bed.switchOf(nic.place.ovsdb) }, nic, options),
  inspectSandbox: (nic, sandbox) => (nic.place.end === "tap" ? [] : sandboxDifferences(sandbox, nic)),
  explain,
  strays(nics, containerId, host) {
    const [first] = nics;
    if (first === undefined) return [];
    return strays(host, { containerId, known: nics.map(({ portId }) => portId) }, first.place);
  },
};

function plan(
  { portID = "", mac, vifDetails = {} }: NicStatus,
  { claim, settings, defaults, containerId }: DeviceContext,
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

/** Asks the switches what they need, and removes what an earlier container of the same ports has left. */
async function prepare(
  nics: readonly NeutronNic[],
  { kernel, switchOf, sandbox }: PrepareBed,
  options: { readonly signal: AbortSignal },
): Promise<readonly NeutronNic[]> {
  const placed = await atSwitches(nics, switchOf, options);
  using host = openHost(kernel);
  await removeObstacles(placed, { host, switchOf }, options);
  // A TAP device is on the host alone.
  refuseTaken(
    sandbox,
    placed.filter(({ place }) => place.end === "veth"),
  );
  return placed;
}

async function plug(nic: NeutronNic, bed: PlugBed, { signal }: { readonly signal: AbortSignal }): Promise<void> {
  const at = { ...bed, ovs: bed.switchOf(nic.place.ovsdb) };
  for (const step of neutronSteps(nic)) {
    signal.throwIfAborted();
    await makeStep(at, nic, step, { signal });
  }
}

function explain(nic: NeutronNic): ExplainedNic {
  const { ovsdb, bridge, externalIds, end } = nic.place;
  return {
    shown: nic,
    side: end === "veth" ? nic : undefined,
    isConfigured: end === "veth",
    hostDevice: deviceNames(nic.portId).tap,
    devices: neutronSteps(nic).flatMap((step) => {
      if (!("name" in step)) return [];
      const master = "master" in step && step.master !== undefined ? { master: step.master } : {};
      return [{ name: step.name, ...master }, ...("peer" in step ? [{ name: step.peer }] : [])];
    }),
    port: { ovsdb, bridge, device: switchDevice(nic), externalIds },
  };
}
