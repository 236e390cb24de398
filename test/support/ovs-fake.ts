/**
 * A switch in memory for tests of what plugs ports: bridges and ports, and failures on demand.
 *
 * Owns: the state, and the same refusals as the real switch. Does not know: devices and packets.
 *
 * ```ts
 * const ovs = new FakeSwitch();
 * ovs.failNext("addPort", new OvsdbError("timeout", "no answer"));
 * ```
 */
import { type OvsBridge, OvsdbError, type OvsPort, type OvsPortState, type OvsSwitch } from "#cloud/ovsdb";

/** Calls that can fail. */
type Call = "addPort" | "deletePort" | "ports";

/** Disposable by forgetting it. */
export class FakeSwitch implements OvsSwitch {
  readonly bridgeNames = new Set(["br-int"]);
  readonly rows = new Map<string, OvsPort>();
  /** The data path of all bridges. */
  datapath = "";
  /** `external_ids` of the switch. */
  ids: Readonly<Record<string, string>> = {};
  readonly #failures: { readonly call: Call; readonly error: Error; readonly late: boolean }[] = [];
  readonly #listeners = new Set<() => void>();

  /** The next call of that name fails; with `late`, after it has had its effect. */
  failNext(call: Call, error: Error, { late = false } = {}): void {
    this.#failures.push({ call, error, late });
  }

  /** Forgets failures that are still to come. */
  heal(): void {
    this.#failures.length = 0;
  }

  /** Loses all ports and bridges, as a restart with a new database. */
  lose(): void {
    this.bridgeNames.clear();
    this.rows.clear();
    this.#changed();
  }

  /** Adds a bridge. */
  addBridge(name = "br-int"): void {
    this.bridgeNames.add(name);
    this.#changed();
  }

  async addPort(port: OvsPort): Promise<void> {
    this.#check("addPort", false);
    if (!this.bridgeNames.has(port.bridge))
      throw new OvsdbError("no-bridge", `Open vSwitch has no bridge ${port.bridge}`);
    const before = this.rows.get(port.device);
    if (before !== undefined && before.externalIds["iface-id"] !== port.externalIds["iface-id"])
      throw new OvsdbError("collision", `a port ${port.device} is there already`);
    this.rows.set(port.device, port);
    this.#changed();
    this.#check("addPort", true);
  }

  async deletePort(
    device: string,
    { only = {} }: { readonly only?: Readonly<Record<string, string>> } = {},
  ): Promise<void> {
    this.#check("deletePort", false);
    const row = this.rows.get(device);
    if (row === undefined || Object.entries(only).some(([key, value]) => row.externalIds[key] !== value)) return;
    this.rows.delete(device);
    this.#changed();
  }

  async ports(): Promise<readonly OvsPortState[]> {
    this.#check("ports", false);
    return [...this.rows.values()].map((row, at) => ({ ...row, ofport: at + 1, error: "" }));
  }

  async bridges(): Promise<readonly OvsBridge[]> {
    this.#check("ports", false);
    return Array.from(this.bridgeNames, (name) => ({ name, datapath: this.datapath, controllers: [] }));
  }

  async externalIds(): Promise<Readonly<Record<string, string>>> {
    this.#check("ports", false);
    return this.ids;
  }

  watch(onChange: () => void, { signal }: { readonly signal: AbortSignal }): Promise<never> {
    this.#listeners.add(onChange);
    onChange();
    return new Promise((_resolve, reject) => {
      signal.addEventListener("abort", () => {
        this.#listeners.delete(onChange);
        reject(signal.reason as Error);
      });
    });
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }

  #check(call: Call, late: boolean): void {
    const at = this.#failures.findIndex((one) => one.call === call && one.late === late);
    const [found] = at < 0 ? [] : this.#failures.splice(at, 1);
    if (found !== undefined) throw found.error;
  }
}
