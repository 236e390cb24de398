import { KeyedMutex, withDeadline } from "#base/async";
import { describeError, ExpectedError } from "#base/errors";
import type { IpAddress, MacAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { type NetStack, OF_OTHERS } from "#kernel/net";
import type { NetNs } from "#kernel/netns";
import { type DeviceDeps, deviceOf, type NicDevice, type PlugBed } from "./device.ts";
import { DEVICES } from "./devices.ts";
import { NicCniError } from "./errors.ts";
import type { Journal } from "./journal.ts";
import { openHost, openIfThere } from "./namespaces.ts";
import { type SwitchPlace, scanSwitch } from "./ovs/find.ts";
import { lostPlans, replug } from "./ovs/repair.ts";
import { removePlan } from "./removal.ts";
import { removeRules, splitAddress } from "./sandbox.ts";
import { tryAll } from "./try-all.ts";
import type { NicPlan, SandboxPlan } from "./types.ts";

/** The collaborators of a {@link NicNetwork}. */
export interface NicNetworkDeps extends DeviceDeps {
  readonly journal: Journal;
  /** The kinds of devices that are plugged. Default: those of this suite. */
  readonly devices?: readonly NicDevice[] | undefined;
  /** Tells the network of a link where addresses are. */
  readonly announce: (
    netns: NetNs,
    link: { readonly index: number; readonly mac: MacAddress },
    addresses: readonly IpAddress[],
  ) => void;
  /**
   * Repairs the ports of one container, and records that this is under way. Resolves to `undefined` while they are set aside: they stay as they are. Default: the work is done,
   * and not recorded.
   */
  readonly recorded?: (
    plan: SandboxPlan,
    repair: () => Promise<number>,
    options: { readonly signal: AbortSignal },
  ) => Promise<number | undefined>;
  readonly log: Logger;
}

/** The result of a removal. */
export interface Removal {
  /** False: nothing of the container was known. */
  readonly found: boolean;
  readonly podUid: string | undefined;
  /** Names of NICs whose device ended with the sandbox, so that Alcor's agent has to make it again. */
  readonly lost: readonly string[];
}

/** The facts that a removal may use beside the journal. */
export interface TearDownOptions {
  readonly signal: AbortSignal;
  /** The CNI_IFNAME of the DEL: NICs that were made for another one stay. Absent: those of any name. */
  readonly ifname?: string | undefined;
  readonly known?: SandboxPlan | undefined;
  /** The switch that is searched for unrecorded ports; absent: none. */
  readonly scan?: SwitchPlace | undefined;
}

/** The time of a rollback, in milliseconds (docs/spec/vpc-nics.md#8.5). */
const ROLLBACK_MS = 5000;

/**
 * The NICs of this node's sandboxes. Calls for one container run one after the other, others side by side; those for one pod must come one after
 * the other. Only one process of a node may use a journal.
 */
export class NicNetwork {
  readonly #deps: NicNetworkDeps;
  readonly #devices: readonly NicDevice[];
  readonly #plans: Map<string, SandboxPlan>;
  /** The locks by container: a repair must not plug a port that is being removed. */
  readonly #locks = new KeyedMutex();

  /** Reads the journal. Throws {@link NicCniError} `journal` if its folder cannot be read; files that are no plans are logged and left alone. */
  constructor(deps: NicNetworkDeps) {
    this.#deps = deps;
    this.#devices = deps.devices ?? DEVICES;
    const { plans, faults } = deps.journal.list();
    for (const fault of faults) deps.log.warn("a file of the journal is no plan of NICs", { error: fault.message });
    this.#plans = new Map(plans.map((plan) => [plan.containerId, plan]));
  }

  /** The plans of all sandboxes that have NICs, or whose removal has failed. */
  plans(): readonly SandboxPlan[] {
    return [...this.#plans.values()];
  }

  /**
   * Makes the NICs in order. What earlier containers of the same ports have left is removed first. After a failure all is removed again, last
   * first; the first failure is thrown: {@link NicCniError}, `KernelError`, `OvsdbError`, or the signal's reason. Returns the plan with what
   * was found.
   */
  setUp(wanted: SandboxPlan, { signal }: { readonly signal: AbortSignal }): Promise<SandboxPlan> {
    return this.#locks.run(wanted.containerId, () => this.#setUp(wanted, { signal }), { signal });
  }

  async #setUp(wanted: SandboxPlan, { signal }: { readonly signal: AbortSignal }): Promise<SandboxPlan> {
    const { kernel } = this.#deps;
    using sandboxNs = openIfThere(kernel, wanted.netns);
    if (sandboxNs === undefined)
      throw new NicCniError(
        "no-sandbox",
        `${wanted.netns} is not a network namespace; the runtime makes it before ADD`,
      );
    using sandbox = kernel.openStack(sandboxNs);
    const before = this.#plans.get(wanted.containerId);
    if (before !== undefined && !isFor(before, wanted.ifname))
      throw new NicCniError(
        "collision",
        `the sandbox has the pod's NICs already, as ${before.ifname}: a pod has those of its VPC once; attach the network once, not as ${wanted.ifname} too`,
      );
    await this.#removeLeftovers(wanted, { signal });
    const plan = { ...wanted, nics: await this.#prepare(wanted.nics, sandbox, { signal }) };
    this.#store(plan);
    try {
      for (const nic of plan.nics) await this.#make(plan, nic, { sandbox, sandboxNs }, { signal });
      return plan;
    } catch (error) {
      await this.#rollBack(plan, sandbox);
      throw error;
    }
  }

  /**
   * Removes the NICs of a container: those of the journal and of `known`, without either ports of the switch with its `vm-id`. Succeeds for what is
   * gone. Rejects with `KernelError`, `OvsdbError` or an `AggregateError`; then the plan stays in the journal.
   */
  tearDown(containerId: string, options: TearDownOptions): Promise<Removal> {
    return this.#locks.run(containerId, () => this.#tearDown(containerId, options), options);
  }

  async #tearDown(containerId: string, options: TearDownOptions): Promise<Removal> {
    const { signal, known, scan, ifname } = options;
    const journaled = this.#plans.get(containerId);
    if (journaled !== undefined && !isFor(journaled, ifname)) return { found: true, podUid: undefined, lost: [] };
    const plan =
      joined(journaled, known) ??
      (scan === undefined ? undefined : await scanSwitch(this.#deps, containerId, scan, { signal }));
    if (plan === undefined) return { found: false, podUid: undefined, lost: [] };
    const lost = await this.#remove(plan, undefined, { signal });
    return { found: true, podUid: plan.podUid === "" ? undefined : plan.podUid, lost };
  }

  /**
   * Adds a NIC to a sandbox that runs; its other NICs stay as they are. After a failure all of it is removed again: {@link NicCniError}, `KernelError`,
   * `OvsdbError`, or the signal's reason. An agent that ends meanwhile leaves it as pending in the plan. Returns it with what was found; `undefined`
   * if the container has no plan any more.
   */
  plug(containerId: string, nic: NicPlan, { signal }: { readonly signal: AbortSignal }): Promise<NicPlan | undefined> {
    return this.#locks.run(containerId, () => this.#plug(containerId, nic, { signal }), { signal });
  }

  async #plug(
    containerId: string,
    wanted: NicPlan,
    { signal }: { readonly signal: AbortSignal },
  ): Promise<NicPlan | undefined> {
    const plan = this.#plans.get(containerId);
    if (plan === undefined) return undefined;
    using sandboxNs = openIfThere(this.#deps.kernel, plan.netns);
    if (sandboxNs === undefined)
      throw new NicCniError("no-sandbox", `${plan.netns} is not a network namespace; the sandbox has ended`);
    using sandbox = this.#deps.kernel.openStack(sandboxNs);
    const [nic = wanted] = await this.#prepare([wanted], sandbox, { signal });
    this.#store({ ...plan, nics: [...plan.nics, { ...nic, pending: true }] });
    try {
      await this.#make(plan, nic, { sandbox, sandboxNs }, { signal });
      this.#store({ ...plan, nics: [...plan.nics, nic] });
      return nic;
    } catch (error) {
      await this.#orLog(
        "a NIC that could not be added could not be removed either; it is tried again",
        containerId,
        (at) => this.#unplug(containerId, nic.portId, { signal: at }),
      );
      throw error;
    }
  }

  /**
   * Removes one NIC of a sandbox that runs. What is gone is success. Returns whether its device was lost, as that of Alcor is with its sandbox. Rejects
   * like {@link tearDown}; then the NIC stays in the plan.
   */
  unplug(containerId: string, portId: string, options: { readonly signal: AbortSignal }): Promise<boolean> {
    return this.#locks.run(containerId, () => this.#unplug(containerId, portId, options), options);
  }

  async #unplug(containerId: string, portId: string, options: { readonly signal: AbortSignal }): Promise<boolean> {
    const plan = this.#plans.get(containerId);
    const nic = plan?.nics.find((one) => one.portId === portId);
    if (plan === undefined || nic === undefined) return false;
    using sandboxNs = openIfThere(this.#deps.kernel, plan.netns);
    using sandbox = sandboxNs === undefined ? undefined : this.#deps.kernel.openStack(sandboxNs);
    const { kernel, switchOf } = this.#deps;
    using host = openHost(kernel);
    const bed = { kernel, switchOf, host, sandbox, containerId };
    let isLost = false;
    await tryAll(`NIC ${nic.name} of container ${containerId}`, [
      async () => {
        isLost = (await deviceOf(nic, this.#devices).unplug(nic, bed, options)) === "lost";
      },
      async () => {
        if (sandbox !== undefined) removeRules(sandbox, nic.index);
      },
    ]);
    this.#store({ ...plan, nics: plan.nics.filter((one) => one !== nic) });
    return isLost;
  }

  #store(plan: SandboxPlan): void {
    this.#deps.journal.write(plan);
    this.#plans.set(plan.containerId, plan);
  }

  /** The differences between the plan of a container and what is there, in words; `undefined` for a container without a plan. */
  async check(
    containerId: string,
    netns: string,
    options: { readonly signal: AbortSignal; readonly ifname?: string | undefined },
  ): Promise<readonly string[] | undefined> {
    const plan = this.#plans.get(containerId);
    if (plan === undefined) return undefined;
    if (!isFor(plan, options.ifname))
      return [`the NICs of the sandbox were made as ${plan.ifname}, not ${options.ifname}`];
    using sandboxNs = openIfThere(this.#deps.kernel, netns);
    if (sandboxNs === undefined) return [`${netns} is not a network namespace`];
    const { kernel, switchOf } = this.#deps;
    using host = openHost(kernel);
    using sandbox = kernel.openStack(sandboxNs, OF_OTHERS);
    const bed: PlugBed = { kernel, switchOf, host, sandbox, sandboxNs, containerId };
    const found: string[] = [];
    for (const nic of plan.nics) {
      if (nic.pending !== true) found.push(...(await deviceOf(nic, this.#devices).inspect(nic, bed, options)));
    }
    return found;
  }

  /** Tells the networks of all NICs of a plan where their addresses are. A NIC that is gone is left out. Throws `KernelError`. */
  announce({ netns, nics }: SandboxPlan): void {
    using sandboxNs = openIfThere(this.#deps.kernel, netns);
    if (sandboxNs === undefined) return;
    using sandbox = this.#deps.kernel.openStack(sandboxNs);
    for (const nic of nics) {
      const link = sandbox.links.get({ name: nic.name });
      if (link?.mac === undefined) continue;
      const { shown } = deviceOf(nic, this.#devices).explain(nic);
      const addresses = shown.addresses.map((one) => splitAddress(one).address);
      this.#deps.announce(sandboxNs, { index: link.index, mac: link.mac }, addresses);
    }
  }

  /**
   * Plugs ports again that a switch has lost, as after a restart with a new database. Ports whose device or bridge does not exist are left out. A
   * container whose ports cannot be plugged does not hold up the others: the first failure is thrown after all were tried. Returns the number of ports. Rejects
   * with `OvsdbError`, `KernelError` or the signal's reason.
   */
  async repair(ovsdb: string, { signal }: { readonly signal: AbortSignal }): Promise<number> {
    const { recorded = (_plan, repair) => repair() } = this.#deps;
    const ports = await this.#deps.switchOf(ovsdb).ports({ signal });
    const there = new Set(ports.map(({ device }) => device));
    let count = 0;
    let first: unknown;
    for (const plan of lostPlans(this.plans(), { ovsdb, there })) {
      const { containerId } = plan;
      // The plan may have changed while the container had its turn.
      const work = () => replug(this.#deps, this.#plans.get(containerId), { ovsdb, there }, { signal });
      try {
        count += (await recorded(plan, () => this.#locks.run(containerId, work, { signal }), { signal })) ?? 0;
      } catch (error) {
        if (signal.aborted || !(error instanceof ExpectedError)) throw error;
        first ??= error;
      }
    }
    if (first !== undefined) throw first;
    return count;
  }

  /** Removes NICs of the journal that have the same container, or a port of the plan. */
  async #removeLeftovers(plan: SandboxPlan, options: { readonly signal: AbortSignal }): Promise<void> {
    const ports = new Set(plan.nics.map(({ portId }) => portId));
    for (const old of this.plans()) {
      if (old.containerId !== plan.containerId && !old.nics.some(({ portId }) => ports.has(portId))) continue;
      this.#deps.log.info("NICs of an earlier ADD are removed", { containerID: old.containerId, pod: old.podUid });
      if (old.containerId === plan.containerId) await this.#remove(old, undefined, options);
      else await this.#locks.run(old.containerId, () => this.#remove(old, undefined, options), options);
    }
  }

  /** NICs with what the node has; those of each kind of device are prepared together. Keeps their order. */
  async #prepare(
    nics: readonly NicPlan[],
    sandbox: NetStack,
    options: { readonly signal: AbortSignal },
  ): Promise<readonly NicPlan[]> {
    const { kernel, switchOf, watch, clock } = this.#deps;
    const bed = { kernel, switchOf, watch, clock, sandbox };
    const prepared = new Map<NicPlan, NicPlan>();
    for (const [device, own] of Map.groupBy(nics, (nic) => deviceOf(nic, this.#devices))) {
      const found = await device.prepare(own, bed, options);
      for (const [at, nic] of own.entries()) prepared.set(nic, found[at] ?? nic);
    }
    return nics.map((nic) => prepared.get(nic) ?? nic);
  }

  async #make(
    { containerId }: SandboxPlan,
    nic: NicPlan,
    { sandbox, sandboxNs }: Pick<PlugBed, "sandbox" | "sandboxNs">,
    { signal }: { readonly signal: AbortSignal },
  ): Promise<void> {
    signal.throwIfAborted();
    const { kernel, switchOf } = this.#deps;
    using host = openHost(kernel);
    const bed = { kernel, switchOf, host, sandbox, sandboxNs, containerId };
    await deviceOf(nic, this.#devices).plug(nic, bed, { signal });
  }

  /** A rollback that fails keeps the plan in the journal, so that DEL and the next ADD remove what is left. */
  #rollBack(plan: SandboxPlan, sandbox: NetStack): Promise<void> {
    const what = "NICs of a failed ADD could not be removed; DEL or the next ADD removes them";
    return this.#orLog(what, plan.containerId, (signal) => this.#remove(plan, sandbox, { signal }));
  }

  /** Removes something within the time of a rollback; a failure is logged, since another one is reported already. */
  async #orLog(what: string, containerID: string, remove: (signal: AbortSignal) => Promise<unknown>): Promise<void> {
    try {
      await withDeadline(ROLLBACK_MS, remove, { clock: this.#deps.clock });
    } catch (error) {
      if (!isExpected(error)) throw error;
      this.#deps.log.warn(what, { containerID, error: describeError(error) });
    }
  }

  /** Removes a plan, last NIC first, and then its file. Returns the names of NICs that were lost. */
  async #remove(
    plan: SandboxPlan,
    sandbox: NetStack | undefined,
    options: { readonly signal: AbortSignal },
  ): Promise<readonly string[]> {
    const lost = await removePlan(this.#deps, plan, { ...options, sandbox });
    this.#deps.journal.remove(plan.containerId);
    this.#plans.delete(plan.containerId);
    return lost;
  }
}

/** Returns true if NICs were made for this CNI_IFNAME; plans of older agents do not say it. */
function isFor(plan: SandboxPlan, ifname: string | undefined): boolean {
  return plan.ifname === undefined || ifname === undefined || plan.ifname === ifname;
}

/** The plan of the journal with the NICs that `known` has besides: those of an earlier ADD whose record was lost. Pure. */
function joined(journaled: SandboxPlan | undefined, known: SandboxPlan | undefined): SandboxPlan | undefined {
  if (journaled === undefined || known === undefined) return journaled ?? known;
  const others = known.nics.filter(({ portId }) => journaled.nics.every((nic) => nic.portId !== portId));
  return { ...journaled, nics: [...journaled.nics, ...others] };
}

function isExpected(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.every(isExpected);
  return error instanceof ExpectedError || (error instanceof DOMException && error.name === "TimeoutError");
}
