import type * as v from "valibot";
import type { Clock } from "#base/clock";
import type { OvsSwitch } from "#cloud/ovsdb";
import type { Kernel, NetStack } from "#kernel/net";
import type { NetNs } from "#kernel/netns";
import type { NicClaim, NicStatus } from "#kube/nic";
import { taken } from "./errors.ts";
import type { SandboxSide } from "./sandbox.ts";
import type { DevicePlace, NicPlan, PlugSettings } from "./types.ts";

/** Hints that a namespace or a device may have appeared; a look follows each. */
export interface DeviceWatch {
  /** Calls `onChange` for changes of the links of a namespace; renames too. */
  links(netns: NetNs, onChange: () => void): AsyncDisposable;
  /** Calls `onChange` for changes of a folder of namespaces. */
  folder(path: string, onChange: () => void): Disposable;
}

/** The values that count where a network's configuration says nothing. */
export interface DeviceDefaults {
  /** The path of the socket of Open vSwitch's database. */
  readonly ovsdb: string;
  readonly bridge: string;
}

/** The claim and the settings from which the place of a NIC is planned. */
export interface DeviceContext {
  readonly claim: NicClaim;
  readonly settings: PlugSettings;
  readonly defaults: DeviceDefaults;
  readonly containerId: string;
}

/** The collaborators of devices on this node. */
export interface DeviceDeps {
  readonly kernel: Kernel;
  /** The switch behind the socket of a database. */
  readonly switchOf: (ovsdb: string) => OvsSwitch;
  readonly watch: DeviceWatch;
  readonly clock: Clock;
}

/** The collaborators of a device before its NICs are made. */
export interface PrepareBed extends DeviceDeps {
  readonly sandbox: NetStack;
}

/** The sandbox and the host of a NIC that is removed. */
export interface UnplugBed {
  readonly kernel: Kernel;
  readonly switchOf: (ovsdb: string) => OvsSwitch;
  readonly host: NetStack;
  /** `undefined`: the sandbox is gone. */
  readonly sandbox: NetStack | undefined;
  readonly containerId: string;
}

/** The sandbox and the host of a NIC that is made, or looked at. */
export interface PlugBed extends UnplugBed {
  readonly sandbox: NetStack;
  readonly sandboxNs: NetNs;
}

/** A NIC as runtimes and people are told of it. */
export interface ExplainedNic {
  /** Settings, addresses and routes of the NIC, for the result of ADD. */
  readonly shown: Pick<NicPlan, "mac" | "mtu" | "addresses" | "routes">;
  /** The wanted state of the sandbox; `undefined`: there is none, as for a machine that configures itself, or it is not known yet. */
  readonly side: SandboxSide | undefined;
  /** False for a virtual machine, which configures itself: it takes the host's device. */
  readonly isConfigured: boolean;
  /** The device of the host that is the other end of the NIC, or the NIC itself. */
  readonly hostDevice?: string | undefined;
  /** The host's devices, each with the bridge that it is a port of. */
  readonly devices: readonly { readonly name: string; readonly master?: string | undefined }[];
  /** The port of a switch. */
  readonly port?:
    | {
        readonly ovsdb: string;
        readonly bridge: string;
        readonly device: string;
        readonly externalIds: Readonly<Record<string, string>>;
      }
    | undefined;
}

type Options = { readonly signal: AbortSignal };

/**
 * One kind of device by which NICs of a cloud are plugged. A plan is data, which the journal keeps before anything is made; every method tolerates that it is called
 * again. What is the same for all kinds, as the journal, the order and the rollback, is `NicNetwork`'s.
 */
export interface NicDevice<Place extends DevicePlace = DevicePlace> {
  /** The kind of its places. */
  readonly kind: string;
  /** The `type` of the network's configuration, which is the name of the CNI executable. */
  readonly type: string;
  readonly placeSchema: v.GenericSchema<unknown, Place>;
  /** True: ADD ends only when the provider has told that the ports are active. False: a plugged device is one that works. */
  readonly awaitsActive: boolean;
  /** True: what a container without a plan may have is found by its switch. */
  readonly hasSwitch: boolean;
  /** The place of a NIC: the device, and the way in which it is plugged. Pure. */
  plan(nic: NicStatus, context: DeviceContext): Place;
  /**
   * Refuses names that are taken ({@link refuseTaken}), waits for what has to be there, and puts into the plans what the node has. Rejects with `NicCniError` `collision` for devices of others, `device-wait` for
   * what does not come in time, `KernelError`, `OvsdbError`, or the signal's reason.
   */
  prepare(nics: readonly NicPlan<Place>[], bed: PrepareBed, options: Options): Promise<readonly NicPlan<Place>[]>;
  /** Makes a NIC that was prepared. A NIC that fails may be half made; {@link unplug} removes what there is. */
  plug(nic: NicPlan<Place>, bed: PlugBed, options: Options): Promise<void>;
  /** Removes a NIC; what is gone is success. `lost`: its device ended with the sandbox, and the cloud has to make it again. */
  unplug(nic: NicPlan<Place>, bed: UnplugBed, options: Options): Promise<"removed" | "lost">;
  /** The differences between a NIC and what is there, in words; empty without one. */
  inspect(nic: NicPlan<Place>, bed: PlugBed, options: Options): Promise<readonly string[]>;
  /** The facts of a NIC that runtimes and people are told. Pure. */
  explain(nic: NicPlan<Place>): ExplainedNic;
  /** The differences between a NIC and its network namespace alone. Throws `KernelError`. */
  inspectSandbox(nic: NicPlan<Place>, sandbox: NetStack): readonly string[];
  /** NICs of a container besides those of its plan, which a lost journal has left. Default: there are none. */
  strays?(nics: readonly NicPlan<Place>[], containerId: string, host: NetStack): readonly NicPlan<Place>[];
}

/** Throws `collision` if the sandbox has a device with the name of a NIC. */
export function refuseTaken(sandbox: NetStack, nics: readonly NicPlan[]): void {
  for (const nic of nics) {
    if (sandbox.links.get({ name: nic.name }) !== undefined)
      throw taken(nic, `the sandbox has another device ${nic.name}`);
  }
}

/** The device of a NIC. Throws if no kind has its place. */
export function deviceOf(nic: NicPlan, devices: readonly NicDevice[]): NicDevice {
  const found = devices.find(({ kind }) => kind === nic.place.kind);
  if (found === undefined) throw new Error(`NIC ${nic.name} has a place of no known kind: ${nic.place.kind}`);
  return found;
}
