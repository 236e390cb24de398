import type { CniResult } from "#wire/cni";
import { deviceNames } from "./names.ts";
import type { NicPlan, SandboxPlan } from "./types.ts";

/** The result of ADD: for each NIC the host's device, if there is one, and the device in the sandbox; addresses with their gateways. Pure. */
export function cniResult({ netns, nics, dns }: SandboxPlan): CniResult {
  const interfaces: { name: string; mac?: string; mtu?: number; sandbox?: string }[] = [];
  const ips: { address: string; gateway?: string; interface: number }[] = [];
  const routes: { dst: string; gw?: string; priority?: number }[] = [];
  for (const nic of nics) {
    const { mac, mtu, addresses, routes: own } = shown(nic);
    const common = { ...(mac === undefined ? {} : { mac }), ...(mtu === undefined ? {} : { mtu }) };
    const isTap = nic.place.kind === "neutron" && nic.place.end === "tap";
    // The runtime of a virtual machine gives the machine's NIC the MAC address; the TAP device itself has another.
    if (isTap) interfaces.push({ name: deviceNames(nic.portId).tap, ...common });
    else if (nic.place.kind === "neutron") interfaces.push({ name: deviceNames(nic.portId).tap });
    if (!isTap) interfaces.push({ name: nic.name, ...common, sandbox: netns });
    const main = own.filter(({ table }) => table === undefined);
    for (const address of addresses) {
      const everywhere = address.includes(":") ? "::/0" : "0.0.0.0/0";
      const gateway = own.find(({ dst }) => dst === everywhere)?.via;
      ips.push({ address, ...(gateway === undefined ? {} : { gateway }), interface: interfaces.length - 1 });
    }
    routes.push(
      ...main.map(({ dst, via, metric }) => ({
        dst,
        ...(via === undefined ? {} : { gw: via }),
        ...(metric === undefined ? {} : { priority: metric }),
      })),
    );
  }
  return { interfaces, ips, routes, dns };
}

/** The device of Alcor's agent brings its own settings. */
function shown({ place, mac, mtu, addresses, routes }: NicPlan): Pick<NicPlan, "mac" | "mtu" | "addresses" | "routes"> {
  if (place.kind === "alcor" && place.saved !== undefined) return place.saved;
  return { ...(mac === undefined ? {} : { mac }), ...(mtu === undefined ? {} : { mtu }), addresses, routes };
}
