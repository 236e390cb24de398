import * as v from "valibot";
import { IpAddress, MacAddress } from "#base/ip";
import { NicCniError, type NicDevice, type NicPlan } from "#features/nic-cni";
import type { NetStack } from "#kernel/net";

/** The place where the cloud's agent has made the device of a NIC. */
interface ToyPlace {
  readonly kind: "toy";
  readonly netns: string;
  readonly device: string;
}

type ToyNic = NicPlan<ToyPlace>;

/** Devices that the toys' agent makes; one moves into the sandbox, and back. */
export const toyDevice: NicDevice<ToyPlace> = {
  kind: "toy",
  type: "vpc-toy",
  placeSchema: v.object({ kind: v.literal("toy"), netns: v.string(), device: v.string() }),
  awaitsActive: false,
  hasSwitch: false,
  plan: ({ netns = "", vethName = "" }) => ({ kind: "toy", netns, device: vethName }),

  async prepare(nics, { kernel }) {
    for (const { place } of nics) {
      using netns = kernel.openNetNs({ path: place.netns });
      using stack = kernel.openStack(netns);
      if (stack.links.get({ name: place.device }) === undefined)
        throw new NicCniError("device-wait", `the agent has not made ${place.device} in ${place.netns}`);
    }
    return nics;
  },

  async plug(nic, { kernel, sandbox, sandboxNs }) {
    using netns = kernel.openNetNs({ path: nic.place.netns });
    using agent = kernel.openStack(netns);
    const link = agent.links.get({ name: nic.place.device });
    if (link === undefined) throw new NicCniError("device-wait", `${nic.place.device} is gone`);
    agent.links.set(link.index, { netns: sandboxNs });
    const moved = sandbox.links.get({ name: nic.place.device });
    if (moved === undefined) throw new NicCniError("device-wait", `${nic.place.device} did not arrive`);
    sandbox.links.set(moved.index, {
      name: nic.name,
      ...(nic.mac === undefined ? {} : { mac: MacAddress.parse(nic.mac) }),
    });
    for (const one of nic.addresses) {
      const [address = "", length] = one.split("/");
      const linkIndex = moved.index;
      sandbox.addresses.replace({ linkIndex, address: IpAddress.parse(address), prefixLength: Number(length) });
    }
    sandbox.links.set(moved.index, { up: true });
  },

  async unplug(nic, { kernel, sandbox }) {
    const link = sandbox?.links.get({ name: nic.name });
    if (sandbox === undefined || link === undefined) return "lost";
    using netns = kernel.openNetNs({ path: nic.place.netns });
    sandbox.links.set(link.index, { up: false });
    sandbox.links.set(link.index, { name: nic.place.device });
    sandbox.links.set(link.index, { netns });
    return "removed";
  },

  inspect: async (nic, { sandbox }) => differences(nic, sandbox),
  inspectSandbox: differences,
  explain: (nic) => ({ shown: nic, side: nic, isConfigured: true, devices: [] }),
};

function differences({ name, addresses }: ToyNic, sandbox: NetStack): readonly string[] {
  const link = sandbox.links.get({ name });
  if (link === undefined) return [`${name} is missing in the sandbox`];
  const has = sandbox.addresses
    .list({ linkIndex: link.index })
    .map(({ address, prefixLength }) => `${address}/${prefixLength}`);
  return [
    ...(link.up ? [] : [`${name} is down`]),
    ...addresses.filter((one) => !has.includes(one)).map((one) => `${name} lacks the address ${one}`),
  ];
}
