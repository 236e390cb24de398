import type { NetStack } from "#kernel/net";
import { type DeviceDeps, deviceOf, type NicDevice } from "./device.ts";
import { DEVICES } from "./devices.ts";
import { openHost, openIfThere } from "./namespaces.ts";
import { removeRules } from "./sandbox.ts";
import { tryAll } from "./try-all.ts";
import type { NicPlan, SandboxPlan } from "./types.ts";

/** The collaborators of a removal. */
export interface RemovalDeps extends Pick<DeviceDeps, "kernel" | "switchOf"> {
  /** Default: those of this suite. */
  readonly devices?: readonly NicDevice[] | undefined;
}

/**
 * Removes the NICs of a plan, last one first, and NICs of the same container that it does not have; the journal stays as it is. Succeeds for what is
 * gone. Returns the names of NICs whose device ended with the sandbox. Rejects with `KernelError`, `OvsdbError` or an `AggregateError`.
 */
export async function removePlan(
  { kernel, switchOf, devices = DEVICES }: RemovalDeps,
  plan: SandboxPlan,
  {
    sandbox: given,
    ...options
  }: {
    readonly signal: AbortSignal;
    /** The sandbox, where it is open already. */
    readonly sandbox?: NetStack | undefined;
  },
): Promise<readonly string[]> {
  using sandboxNs = given === undefined && plan.netns !== "" ? openIfThere(kernel, plan.netns) : undefined;
  using opened = sandboxNs === undefined ? undefined : kernel.openStack(sandboxNs);
  using host = openHost(kernel);
  const sandbox = given ?? opened;
  const lost: string[] = [];
  const { containerId } = plan;
  const bed = { kernel, switchOf, host, sandbox, containerId };
  const nics = [...plan.nics, ...straysOf(plan, host, devices)];
  const removals = nics.toReversed().map((nic) => async (): Promise<void> => {
    if ((await deviceOf(nic, devices).unplug(nic, bed, options)) === "lost") lost.push(nic.name);
  });
  const rules = async (): Promise<void> => {
    if (sandbox !== undefined) removeRules(sandbox);
  };
  await tryAll(`container ${containerId}`, [...removals, rules]);
  return lost;
}

function straysOf(
  { nics, containerId }: SandboxPlan,
  host: NetStack,
  devices: readonly NicDevice[],
): readonly NicPlan[] {
  return devices.flatMap((device) => {
    const own = nics.filter(({ place }) => place.kind === device.kind);
    return own.length === 0 ? [] : (device.strays?.(own, containerId, host) ?? []);
  });
}
