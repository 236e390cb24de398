import type { Logger } from "#base/log";
import { isOvsdbError, type OvsSwitch } from "#cloud/ovsdb";
import type { Kernel } from "#kernel/net";
import { ownerOf } from "../names.ts";
import { openHost } from "../namespaces.ts";
import type { SandboxPlan } from "../types.ts";
import { switchDevice } from "./make.ts";
import { isNeutron, type NeutronNic } from "./place.ts";

/** The ports of a switch. */
export interface SwitchPorts {
  /** The socket of its database. */
  readonly ovsdb: string;
  /** The devices of its ports. */
  readonly there: ReadonlySet<string>;
}

/** The plans of which a switch has lost ports. Pure. */
export function lostPlans(plans: readonly SandboxPlan[], ports: SwitchPorts): readonly SandboxPlan[] {
  return plans.filter(({ nics }) => lostNics(nics, ports).length > 0);
}

function lostNics(nics: SandboxPlan["nics"], { ovsdb, there }: SwitchPorts): readonly NeutronNic[] {
  return nics.filter(isNeutron).filter((nic) => nic.place.ovsdb === ovsdb && !there.has(switchDevice(nic)));
}

/**
 * Plugs the lost ports of a container again, if it still has its plan and its devices. Ports whose device or bridge does not exist are left out. Returns their
 * number. Rejects with `OvsdbError`, `KernelError` or the signal's reason.
 */
export async function replug(
  {
    kernel,
    switchOf,
    log,
  }: { readonly kernel: Kernel; readonly switchOf: (ovsdb: string) => OvsSwitch; readonly log: Logger },
  plan: SandboxPlan | undefined,
  ports: SwitchPorts,
  options: { readonly signal: AbortSignal },
): Promise<number> {
  if (plan === undefined) return 0;
  const { containerId } = plan;
  const ovs = switchOf(ports.ovsdb);
  using host = openHost(kernel);
  let count = 0;
  for (const nic of lostNics(plan.nics, ports)) {
    const device = switchDevice(nic);
    if (ownerOf(host.links.get({ name: device })?.alias)?.containerId !== containerId) continue;
    try {
      await ovs.addPort({ bridge: nic.place.bridge, device, externalIds: nic.place.externalIds }, options);
    } catch (error) {
      // The bridge comes back later, and with it the next event.
      if (!isOvsdbError(error, "no-bridge")) throw error;
      continue;
    }
    count += 1;
    const fields = { device, portID: nic.portId, containerID: containerId };
    log.info("a port was plugged again that the switch had lost", fields);
  }
  return count;
}
