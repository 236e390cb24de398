import { dirname } from "node:path";
import { Dirty } from "#base/async";
import type { Clock } from "#base/clock";
import { runPath } from "#base/file";
import { MacAddress } from "#base/ip";
import { RX_CHECKSUMS, SEGMENTATION, TX_CHECKSUMS } from "#kernel/ethtool";
import type { Link } from "#kernel/link";
import type { Kernel, NetStack } from "#kernel/net";
import type { NetNs } from "#kernel/netns";
import type { DeviceWatch } from "../device.ts";
import { NicCniError } from "../errors.ts";
import { openIfThere } from "../namespaces.ts";
import { planRouting } from "../routing.ts";
import { configureSandbox, raiseLoopback, type SandboxSide } from "../sandbox.ts";
import type { PlannedRoute } from "../types.ts";
import type { AlcorNic, SavedDevice } from "./place.ts";

/** A look without a hint, in milliseconds: a hint may be lost. */
const LOOK_MS = 250;
const MAIN_TABLE = 254;
const PROTOCOL_KERNEL = 2;

/**
 * Waits until Alcor's agent has renamed the device of a NIC to its final name, which it does when the data plane is programmed; the namespace
 * may appear later too. The watch begins before the look, so no rename falls between. Returns what the device has. Rejects with
 * {@link NicCniError} `device-wait` after the time of the plan, `KernelError`, or the signal's reason.
 */
export async function awaitDevice(
  deps: { readonly kernel: Kernel; readonly watch: DeviceWatch; readonly clock: Clock },
  { place }: AlcorNic,
  { signal }: { readonly signal: AbortSignal },
): Promise<SavedDevice> {
  const { kernel, watch, clock } = deps;
  const dirty = new Dirty(clock);
  const endMs = clock.monotonic() + place.waitMs;
  using _folder = watch.folder(dirname(runPath(place.netns)), () => dirty.mark("folder"));
  const nextLook = async (missing: string): Promise<void> => {
    const leftMs = endMs - clock.monotonic();
    if (leftMs <= 0)
      throw new NicCniError(
        "device-wait",
        `${missing} did not appear within ${place.waitMs} ms: is Alcor's agent running?`,
      );
    await dirty.wait({ atMostMs: Math.min(leftMs, LOOK_MS), signal });
    signal.throwIfAborted();
  };
  for (;;) {
    using netns = openIfThere(kernel, place.netns);
    if (netns === undefined) {
      await nextLook(`network namespace ${place.netns}`);
      continue;
    }
    await using _links = watch.links(netns, () => dirty.mark("link"));
    using stack = kernel.openStack(netns);
    for (;;) {
      const link = stack.links.get({ name: place.device });
      if (link !== undefined) return saveDevice(stack, link);
      await nextLook(`device ${place.device} in ${place.netns}`);
    }
  }
}

/** Reads what a move drops. Addresses and routes that the kernel makes by itself are left out. */
function saveDevice(stack: NetStack, link: Link): SavedDevice {
  const addresses = stack.addresses
    .list({ linkIndex: link.index })
    .filter(({ address }) => !(address.family === 6 && address.isLinkLocal))
    .map(({ address, prefixLength }) => `${address}/${prefixLength}`);
  const routes = ([4, 6] as const).flatMap((family) =>
    stack.routes
      .list({ family, table: MAIN_TABLE, linkIndex: link.index })
      .filter(({ protocol, type }) => protocol !== PROTOCOL_KERNEL && type === "unicast")
      .map(
        ({ dst, gateway, metric, onlink }): PlannedRoute => ({
          dst: String(dst),
          ...(gateway === undefined ? {} : { via: String(gateway) }),
          ...(metric === undefined ? {} : { metric }),
          ...(onlink === true ? { onlink } : {}),
        }),
      ),
  );
  return { ...(link.mac === undefined ? {} : { mac: String(link.mac) }), mtu: link.mtu, addresses, routes };
}

/** The sandbox's side of a device: everything that the device had, with the metrics and the table of the NIC's place in the pod. Pure. */
export function alcorSide(nic: AlcorNic, saved: SavedDevice): SandboxSide {
  const gateway = (dst: string): string | undefined => saved.routes.find((route) => route.dst === dst)?.via;
  const throughGateway = saved.routes.flatMap(({ dst, via }) => (via === undefined ? [] : [{ dst, via }]));
  const direct = saved.routes.filter(({ via }) => via === undefined);
  const routing = planRouting(
    {
      addresses: saved.addresses,
      gateways: { 4: gateway("0.0.0.0/0"), 6: gateway("::/0") },
      hostRoutes: throughGateway,
      metric: nic.metric,
      secondary: nic.secondary,
    },
    nic.index,
  );
  return {
    name: nic.name,
    ...(saved.mac === undefined ? {} : { mac: saved.mac }),
    mtu: saved.mtu,
    addresses: saved.addresses,
    routes: [...direct, ...routing.routes],
    rules: routing.rules,
    acceptRa: nic.acceptRa,
  };
}

/** Moves the device of a NIC into the sandbox, and gives it back there what it had. `nic.place.saved` is in the journal. Throws `KernelError`. */
export function takeDevice(kernel: Kernel, nic: AlcorNic, sandbox: NetStack, sandboxNs: NetNs): void {
  const { place } = nic;
  using vpcNs = kernel.openNetNs({ path: place.netns });
  using vpc = kernel.openStack(vpcNs);
  const link = vpc.links.get({ name: place.device });
  if (link === undefined || place.saved === undefined)
    throw new NicCniError(
      "device-wait",
      `device ${place.device} was removed from ${place.netns} before it could be moved`,
    );
  vpc.links.set(link.index, { up: false });
  vpc.links.set(link.index, { netns: sandboxNs });
  const moved = sandbox.links.get({ name: place.device });
  if (moved === undefined) throw new NicCniError("device-wait", `device ${place.device} did not arrive in the sandbox`);
  sandbox.links.set(moved.index, { name: nic.name });
  if (place.mizarTuning) {
    sandbox.sysctl.set("net/ipv4/tcp_mtu_probing", "2");
    sandbox.offloads.disable(moved.index, [...SEGMENTATION, ...RX_CHECKSUMS, ...TX_CHECKSUMS]);
  }
  raiseLoopback(sandbox);
  configureSandbox(sandbox, moved.index, alcorSide(nic, place.saved));
}

/**
 * Moves the device of a NIC back into the VPC's namespace, under its name and with its settings. Returns `lost` if it ended with the sandbox.
 * `sandbox` is absent when that is gone. What was done before is success. Throws `KernelError`.
 */
export function giveBack(kernel: Kernel, nic: AlcorNic, sandbox: NetStack | undefined): "returned" | "lost" {
  const { place } = nic;
  using vpcNs = openIfThere(kernel, place.netns);
  const link = sandbox === undefined ? undefined : deviceOf(sandbox, nic);
  if (vpcNs === undefined) {
    if (link !== undefined) sandbox?.links.delete(link.index);
    return "lost";
  }
  using vpc = kernel.openStack(vpcNs);
  if (link !== undefined && sandbox !== undefined) {
    sandbox.links.set(link.index, { up: false });
    if (link.name !== place.device) sandbox.links.set(link.index, { name: place.device });
    sandbox.links.set(link.index, { netns: vpcNs });
  }
  const back = vpc.links.get({ name: place.device });
  if (back === undefined) return place.saved === undefined ? "returned" : "lost";
  // A device that is up was never taken, or has its settings again.
  if (!back.up && place.saved !== undefined) restore(vpc, back.index, place.device, place.saved);
  return "returned";
}

function restore(vpc: NetStack, linkIndex: number, name: string, { mac, mtu, addresses, routes }: SavedDevice): void {
  const side = { ...(mac === undefined ? {} : { mac }), mtu, addresses, routes };
  configureSandbox(vpc, linkIndex, { name, ...side, rules: [], acceptRa: true });
}

/** The device in the sandbox, under either of its names, recognized by its MAC address. */
function deviceOf(sandbox: NetStack, { name, place }: AlcorNic): Link | undefined {
  for (const one of [place.device, name]) {
    const link = sandbox.links.get({ name: one });
    if (link === undefined) continue;
    if (
      one === place.device ||
      place.saved?.mac === undefined ||
      String(link.mac) === String(MacAddress.parse(place.saved.mac))
    )
      return link;
  }
  return undefined;
}
