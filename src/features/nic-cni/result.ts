import type { CniResult } from "#wire/cni";
import { deviceOf, type NicDevice } from "./device.ts";
import { DEVICES } from "./devices.ts";
import type { SandboxPlan } from "./types.ts";

/** The result of ADD: for each NIC the host's device, if there is one, and the device in the sandbox; addresses with their gateways. Pure. */
export function cniResult({ netns, nics, dns }: SandboxPlan, devices: readonly NicDevice[] = DEVICES): CniResult {
  const interfaces: { name: string; mac?: string; mtu?: number; sandbox?: string }[] = [];
  const ips: { address: string; gateway?: string; interface: number }[] = [];
  const routes: { dst: string; gw?: string; priority?: number }[] = [];
  for (const nic of nics) {
    const { shown, hostDevice, isConfigured } = deviceOf(nic, devices).explain(nic);
    const { mac, mtu, addresses, routes: own } = shown;
    const common = { ...(mac === undefined ? {} : { mac }), ...(mtu === undefined ? {} : { mtu }) };
    // The runtime of a virtual machine gives the machine's NIC the MAC address; the host's device itself has another.
    if (hostDevice !== undefined) interfaces.push({ name: hostDevice, ...(isConfigured ? {} : common) });
    if (isConfigured) interfaces.push({ name: nic.name, ...common, sandbox: netns });
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
