import type { OvsPortState, OvsSwitch } from "#cloud/ovsdb";
import type { Kernel, NetStack } from "#kernel/net";
import { type AlcorNic, giveBack, openIfThere } from "./alcor-device.ts";
import { deviceNames, ownerOf } from "./names.ts";
import { type NeutronNic, removeNeutronNic, tryAll } from "./neutron-devices.ts";
import { removeRules } from "./sandbox.ts";
import type { NeutronPlace, NicPlan, SandboxPlan } from "./types.ts";

/** What a removal works with. */
export interface RemovalDeps {
  readonly kernel: Kernel;
  /** The switch behind the socket of a database. */
  readonly switchOf: (ovsdb: string) => OvsSwitch;
}

/**
 * Removes the NICs of a plan, last one first, and NICs of the same container that it does not have; the journal stays as it is. Succeeds for what is
 * gone. Returns the names of NICs whose device ended with the sandbox. Rejects with `KernelError`, `OvsdbError` or an `AggregateError`.
 */
export async function removePlan(
  { kernel, switchOf }: RemovalDeps,
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
  const place = plan.nics.find(isNeutron)?.place;
  const owner = { containerId: plan.containerId, known: plan.nics.map(({ portId }) => portId) };
  const nics = place === undefined ? plan.nics : [...plan.nics, ...strays(host, owner, place)];
  const removals = nics.toReversed().map((nic) => async (): Promise<void> => {
    if (isNeutron(nic)) {
      const ovs = switchOf(nic.place.ovsdb);
      await removeNeutronNic({ host, ovs, containerId: plan.containerId }, nic, options);
    } else if (isAlcor(nic) && giveBack(kernel, nic, sandbox) === "lost") lost.push(nic.name);
  });
  const rules = async (): Promise<void> => {
    if (sandbox !== undefined) removeRules(sandbox);
  };
  await tryAll(`container ${plan.containerId}`, [...removals, rules]);
  return lost;
}

/** The host's stack; features never switch the namespace. */
export function openHost(kernel: Kernel): NetStack {
  using own = kernel.openNetNs("own");
  return kernel.openStack(own);
}

/** NICs of a container besides those of `known` ports, by the aliases of devices: those of an earlier ADD whose journal was lost. */
export function strays(
  host: NetStack,
  { containerId, known }: { readonly containerId: string; readonly known: readonly string[] },
  place: Pick<NeutronPlace, "ovsdb" | "bridge">,
): readonly NeutronNic[] {
  const owners = host.links.list().flatMap(({ alias }) => ownerOf(alias) ?? []);
  const found = owners.filter((owner) => owner.containerId === containerId && !known.includes(owner.portId));
  return Array.from(new Set(found.map(({ portId }) => portId)), (portId) => {
    const { outer, tap, inner } = deviceNames(portId);
    const device = host.links.get({ name: inner }) === undefined ? tap : outer;
    return scannedNic(
      { bridge: place.bridge, device, externalIds: { "iface-id": portId }, ofport: undefined, error: "" },
      place,
    );
  });
}

/** A NIC that is enough for a removal, from a port of the switch. */
export function scannedNic(port: OvsPortState, { ovsdb, bridge }: Pick<NeutronPlace, "ovsdb" | "bridge">): NeutronNic {
  const portId = port.externalIds["iface-id"] ?? "";
  return {
    name: port.device,
    portId,
    index: 0,
    metric: 0,
    addresses: [],
    routes: [],
    rules: [],
    acceptRa: false,
    place: {
      kind: "neutron",
      ovsdb,
      bridge,
      hybrid: port.device === deviceNames(portId).outer,
      end: "veth",
      netdev: false,
      externalIds: port.externalIds,
    },
  };
}

export function isNeutron(nic: NicPlan): nic is NeutronNic {
  return nic.place.kind === "neutron";
}

export function isAlcor(nic: NicPlan): nic is AlcorNic {
  return nic.place.kind === "alcor";
}
