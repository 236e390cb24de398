import { MacAddress } from "#base/ip";
import { isOvn, type OvsBridge, type OvsSwitch } from "#cloud/ovsdb";
import { TX_CHECKSUMS } from "#kernel/ethtool";
import type { Link } from "#kernel/link";
import type { NetStack } from "#kernel/net";
import type { NetNs } from "#kernel/netns";
import { ignoreRouters } from "#kernel/sysctl";
import { NicCniError } from "../errors.ts";
import { aliasOf, deviceNames, ownerOf } from "../names.ts";
import { configureSandbox, raiseLoopback, sandboxDifferences } from "../sandbox.ts";
import { tryAll } from "../try-all.ts";
import type { NeutronNic, NeutronPlace } from "./place.ts";

/** One device of the host, or one step behind the devices, in the order in which they are made. */
export type NeutronStep =
  | { readonly make: "bridge"; readonly name: string }
  | { readonly make: "pair"; readonly name: string; readonly peer: string; readonly master: string }
  | { readonly make: "veth" | "tap"; readonly name: string; readonly master: string | undefined }
  | { readonly make: "sandbox" }
  | { readonly make: "port"; readonly device: string };

/** The steps of a NIC (docs/spec/vpc-nics.md#8.3); removal goes backwards. Pure. */
export function neutronSteps({ portId, place }: NeutronNic): readonly NeutronStep[] {
  const { bridge, inner, outer, tap } = deviceNames(portId);
  return [
    ...(place.hybrid
      ? ([
          { make: "bridge", name: bridge },
          { make: "pair", name: inner, peer: outer, master: bridge },
        ] as const)
      : []),
    { make: place.end, name: tap, master: place.hybrid ? bridge : undefined },
    // The runtime of a virtual machine takes the TAP device, so the sandbox gets nothing.
    ...(place.end === "veth" ? ([{ make: "sandbox" }] as const) : []),
    { make: "port", device: place.hybrid ? outer : tap },
  ];
}

/** The port of the integration bridge. */
export function switchDevice(nic: NeutronNic): string {
  const { outer, tap } = deviceNames(nic.portId);
  return nic.place.hybrid ? outer : tap;
}

/** The facts that a switch reports about itself. */
export interface SwitchFacts {
  readonly bridges: readonly OvsBridge[];
  readonly externalIds: Readonly<Record<string, string>>;
}

/**
 * The place of a NIC as its switch has it: of OVN the port's binding tells neither the data path nor that no Linux bridge is needed. A data path in user
 * space, of whomever, forwards no packet whose checksum is left to a device. Pure.
 */
export function placeAt(place: NeutronPlace, { bridges, externalIds }: SwitchFacts): NeutronPlace {
  const { hybridUnlessOvn, ...known } = place;
  const isNetdev = bridges.some(({ name, datapath }) => name === place.bridge && datapath === "netdev");
  return {
    ...known,
    netdev: place.netdev || isNetdev,
    hybrid: hybridUnlessOvn === true ? !isOvn(externalIds) : place.hybrid,
  };
}

/** The place in which the steps are made. */
export interface NeutronBed {
  readonly host: NetStack;
  readonly sandbox: NetStack;
  readonly sandboxNs: NetNs;
  readonly ovs: OvsSwitch;
  readonly containerId: string;
}

/** Makes one step. Throws `KernelError` or `OvsdbError`; what a failed step has made is removed by {@link removeNeutronNic}. */
export async function makeStep(
  bed: NeutronBed,
  nic: NeutronNic,
  step: NeutronStep,
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  switch (step.make) {
    case "bridge":
      return makeBridge(bed, nic, step);
    case "pair":
      return makePair(bed, nic, step);
    case "veth":
    case "tap":
      return makeEnd(bed, nic, step);
    case "sandbox": {
      const index = indexOf(bed.sandbox, nic.name);
      if (nic.place.netdev) bed.sandbox.offloads.disable(index, TX_CHECKSUMS);
      raiseLoopback(bed.sandbox);
      configureSandbox(bed.sandbox, index, nic);
      return;
    }
    case "port": {
      const { bridge, externalIds } = nic.place;
      return await bed.ovs.addPort({ bridge, device: step.device, externalIds }, { signal });
    }
  }
}

type StepOf<Make extends NeutronStep["make"]> = Extract<NeutronStep, { make: Make }>;

/** The marks and the MTU that all devices of a NIC have. */
function common({ containerId }: NeutronBed, { portId, mtu }: NeutronNic) {
  return { alias: aliasOf(portId, containerId), mtu: mtu === undefined ? {} : { mtu } };
}

function makeBridge(bed: NeutronBed, nic: NeutronNic, { name }: StepOf<"bridge">): void {
  const { alias, mtu } = common(bed, nic);
  const options = { stp: false, ageingSeconds: 0, multicastSnooping: false };
  const bridge = bed.host.links.create({ kind: "bridge", name, alias, ...mtu, ...options });
  withoutRouters(bed.host, name);
  bed.host.links.set(bridge.index, { up: true });
}

function makePair(bed: NeutronBed, nic: NeutronNic, step: StepOf<"pair">): void {
  const { host } = bed;
  const { alias, mtu } = common(bed, nic);
  const masterIndex = indexOf(host, step.master);
  const peer = { name: step.peer, ...mtu };
  const inner = host.links.create({ kind: "veth", name: step.name, alias, masterIndex, ...mtu, peer });
  for (const name of [step.name, step.peer]) {
    withoutRouters(host, name);
    const index = name === step.name ? inner.index : indexOf(host, name);
    host.links.set(index, { promiscuous: true, up: true, alias });
  }
}

function makeEnd(bed: NeutronBed, nic: NeutronNic, step: StepOf<"veth" | "tap">): void {
  const { host, sandboxNs } = bed;
  const { alias, mtu } = common(bed, nic);
  const masterIndex = step.master === undefined ? {} : { masterIndex: indexOf(host, step.master) };
  const base = { name: step.name, alias, ...masterIndex, ...mtu };
  const mac = nic.mac === undefined ? {} : { mac: MacAddress.parse(nic.mac) };
  const owner = nic.place.ownerUid === undefined ? {} : { ownerUid: nic.place.ownerUid };
  const end = host.links.create(
    step.make === "tap"
      ? { kind: "tun", mode: "tap", vnetHeader: true, multiQueue: nic.place.multiQueue, ...owner, ...base }
      : { kind: "veth", ...base, peer: { name: nic.name, netns: sandboxNs, ...mac, ...mtu } },
  );
  withoutRouters(host, step.name);
  host.links.set(end.index, { up: true });
}

/** On a device between a sandbox and the switch the host answers nothing, and it takes no routes from there. */
function withoutRouters({ sysctl }: NetStack, name: string): void {
  ignoreRouters(sysctl, name, { ipv6: false });
}

function indexOf(stack: NetStack, name: string): number {
  const link = stack.links.get({ name });
  if (link === undefined) throw new NicCniError("no-sandbox", `link ${name} was removed while NICs were made`);
  return link.index;
}

/**
 * Removes a NIC backwards: port, host's end with its peer, pair, bridge. Only what is of this port and container; what is
 * gone already is success. Every part is tried; throws the failures as one `AggregateError`.
 */
export async function removeNeutronNic(
  bed: Omit<NeutronBed, "sandbox" | "sandboxNs">,
  nic: NeutronNic,
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const { bridge, inner, outer, tap } = deviceNames(nic.portId);
  const { host } = bed;
  const own = { "iface-id": nic.portId, "vm-id": bed.containerId };
  const devices = nic.place.hybridUnlessOvn === true ? [outer, tap] : [switchDevice(nic)];
  await tryAll(`NIC ${nic.name}`, [
    ...devices.map((device) => () => bed.ovs.deletePort(device, { signal, only: own })),
    () => removeOwn(host, [tap, inner, bridge], { portId: nic.portId, containerId: bed.containerId }),
  ]);
}

/**
 * Removes devices together, which takes little longer than one of them: the kernel waits once. A device without an alias is one whose creation was
 * interrupted: the journal knew it before.
 */
async function removeOwn(
  host: NetStack,
  names: readonly string[],
  { portId, containerId }: { readonly portId: string; readonly containerId: string },
): Promise<void> {
  const links = names.flatMap((name) => host.links.get({ name }) ?? []);
  const own = links.filter(({ alias }) => {
    const owner = ownerOf(alias);
    return owner === undefined ? alias === undefined : owner.portId === portId && owner.containerId === containerId;
  });
  if (own.length === 0) return;
  const failures = await host.links.deleteMany(own);
  // The peer in a sandbox that ends takes a device along.
  const real = [...failures.values()].filter((failure) => failure.code !== "no-device");
  if (real.length === 1) throw real[0];
  if (real.length > 1) throw new AggregateError(real, `devices of port ${portId} could not be removed`);
}

/** The device of the host that stands in the way of a NIC; `undefined` without one. */
export function obstacle(host: NetStack, nic: NeutronNic): Link | undefined {
  const { bridge, inner, outer, tap } = deviceNames(nic.portId);
  const names = nic.place.hybrid ? [bridge, inner, outer, tap] : [tap];
  return names.map((name) => host.links.get({ name })).find((link) => link !== undefined);
}

/** The differences between what is there and a NIC, in words. Throws `KernelError` or `OvsdbError`. */
export async function neutronDifferences(
  bed: NeutronBed,
  nic: NeutronNic,
  options: { readonly signal: AbortSignal },
): Promise<string[]> {
  const found: string[] = [];
  for (const step of neutronSteps(nic)) {
    if (step.make === "sandbox") found.push(...sandboxDifferences(bed.sandbox, nic));
    else if (step.make !== "port") {
      const link = bed.host.links.get({ name: step.name });
      const wanted =
        "master" in step && step.master !== undefined ? bed.host.links.get({ name: step.master })?.index : undefined;
      if (link === undefined) found.push(`the host lacks ${step.name}`);
      else if (!link.up) found.push(`${step.name} is down`);
      else if (wanted !== undefined && link.masterIndex !== wanted)
        found.push(`${step.name} is not a port of its bridge`);
    }
  }
  const device = switchDevice(nic);
  const port = (await bed.ovs.ports(options)).find((one) => one.device === device);
  if (port === undefined || port.bridge !== nic.place.bridge)
    found.push(`${nic.place.bridge} lacks the port ${device}`);
  else if (port.externalIds["iface-id"] !== nic.portId)
    found.push(`port ${device} has iface-id ${port.externalIds["iface-id"] ?? "none"}, not ${nic.portId}`);
  else if (port.error !== "") found.push(`port ${device} is not served: ${port.error}`);
  return found;
}
