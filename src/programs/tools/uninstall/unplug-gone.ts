import { systemClock } from "#base/clock";
import { OpenVSwitch } from "#cloud/ovsdb";
import { removePlan } from "#features/nic-cni";
import type { Kernel } from "#kernel/net";
import { inRoot, type NodePlaces } from "./places.ts";
import { nicJournals } from "./read-node.ts";

/**
 * Removes the NICs of a container whose sandbox is gone, as the DEL does that no runtime has called, and forgets them. Devices have ended with the
 * sandbox; ports are left in the database of Open vSwitch, which must answer. Rejects with `KernelError`, `OvsdbError`, `NicCniError` or an `AggregateError`.
 */
export async function unplugGone(
  kernel: Kernel,
  at: Pick<NodePlaces, "root" | "owned">,
  containerId: string,
  signal: AbortSignal,
): Promise<void> {
  const switchOf = (ovsdb: string): OpenVSwitch =>
    new OpenVSwitch({ clock: systemClock }, { socketPath: inRoot(at, ovsdb) });
  for (const journal of nicJournals(at)) {
    const plan = journal.list().plans.find((one) => one.containerId === containerId);
    if (plan === undefined) continue;
    await removePlan({ kernel, switchOf }, plan, { signal });
    journal.remove(containerId);
  }
}
