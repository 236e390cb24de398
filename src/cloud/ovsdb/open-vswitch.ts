import { type AbortOptions, Backoff, sleep } from "#base/async";
import type { Clock } from "#base/clock";
import { isRefusal, type OperationResult, OvsdbConnection, type Refusal } from "./connection.ts";
import { OvsdbError } from "./errors.ts";
import { mapOf, type OvsdbOperation, type OvsdbRow, optional, textMap, textOf, uuidOf, uuids } from "./values.ts";

/** A port of a bridge, with one interface of the same name. */
export interface OvsPort {
  readonly bridge: string;
  /** The name of the network device, of the port and of the interface. */
  readonly device: string;
  /** `external_ids` of the interface; the agent of Neutron looks for `iface-id`. */
  readonly externalIds: Readonly<Record<string, string>>;
}

/** A port as the switch has it. */
export interface OvsPortState extends OvsPort {
  /** The number at which the switch serves it; `undefined`: not yet, or not at all. */
  readonly ofport: number | undefined;
  /** The reason why the switch does not serve the interface; empty without a fault. */
  readonly error: string;
}

/** A bridge as the switch has it. */
export interface OvsBridge {
  readonly name: string;
  /** `system` or `netdev`; empty is `system`. */
  readonly datapath: string;
  /** The OpenFlow controllers; the agent of Neutron is one of its integration bridge. */
  readonly controllers: readonly { readonly target: string; readonly isConnected: boolean }[];
}

/** Returns true if OVN's controller programs a switch, by `external_ids` of the switch (ovn-controller(8)). Pure. */
export function isOvn(externalIds: Readonly<Record<string, string>>): boolean {
  return Object.entries(externalIds).some(
    ([key, value]) => /^ovn-remote(-(?!probe-interval)|$)/.test(key) && value !== "",
  );
}

/** The ports of a switch. Calls reject with {@link OvsdbError}, and with the signal's reason. */
export interface OvsSwitch {
  /** Makes a port in one transaction, and waits until the switch serves it. One with the same `iface-id` gets the new external ids. */
  addPort(port: OvsPort, options?: AbortOptions): Promise<void>;
  /** Removes ports by device. One that does not exist, or whose external ids are other than `only`, is left alone. */
  deletePort(
    device: string,
    options?: AbortOptions & { readonly only?: Readonly<Record<string, string>> },
  ): Promise<void>;
  /** All ports of all bridges. */
  ports(options?: AbortOptions): Promise<readonly OvsPortState[]>;
  /** All bridges. */
  bridges(options?: AbortOptions): Promise<readonly OvsBridge[]>;
  /** `external_ids` of the switch itself, by which those who program it are set up, such as OVN's controller. */
  externalIds(options?: AbortOptions): Promise<Readonly<Record<string, string>>>;
  /** Calls `onChange` once watching has begun, and after each change of bridges and ports; rejects when the connection ends. */
  watch(onChange: () => void, options: { readonly signal: AbortSignal }): Promise<never>;
}

/** Settings of an {@link OvsSwitch}. */
export interface OvsSwitchOptions {
  /** The socket of the database, such as `/var/run/openvswitch/db.sock`. */
  readonly socketPath: string;
  /** The time of a call, and of the wait for the switch, in milliseconds. Default 10,000. */
  readonly timeoutMs?: number;
}

const DEFAULT_TIMEOUT_MS = 10_000;
/** Tries of a change whose rows have changed meanwhile. */
const MAX_TRIES = 5;
/** Pauses between two looks at whether the switch has done what the database says, in milliseconds. */
const LOOK_MS = { initialMs: 2, maxMs: 50 } as const;

/** The operations of {@link addOperations} by index. */
const WAIT_BRIDGE = 0;
const WAIT_PORT = 1;

/** Open vSwitch behind its database. Each call has a connection of its own, so a restart of the database ends no later call. */
export class OpenVSwitch implements OvsSwitch {
  readonly #clock: Clock;
  readonly #path: string;
  readonly #timeoutMs: number;

  constructor(deps: { readonly clock: Clock }, options: OvsSwitchOptions) {
    this.#clock = deps.clock;
    this.#path = options.socketPath;
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  }

  async addPort(port: OvsPort, options: AbortOptions = {}): Promise<void> {
    await using connection = await this.#open(options);
    const call = { ...options, timeoutMs: this.#timeoutMs };
    for (let tries = 1; ; tries += 1) {
      const results = await connection.transact(addOperations(port), call);
      if (!isRefusal(results)) return await this.#served(connection, port, nextCfg(results), options);
      if (results.error === "timed out" && results.operation === WAIT_BRIDGE) {
        throw new OvsdbError(
          "no-bridge",
          `Open vSwitch has no bridge ${port.bridge}: is the agent of the node running?`,
        );
      }
      if (results.error !== "timed out" || results.operation !== WAIT_PORT || tries >= MAX_TRIES)
        throw refused(port.device, results);
      const taken = (await portsOf(connection, call)).find(({ device }) => device === port.device);
      if (taken === undefined) continue;
      if (taken.bridge !== port.bridge || taken.externalIds["iface-id"] !== port.externalIds["iface-id"])
        throw collision(port, taken);
      const renewed = await connection.transact(renewOperations(port, taken), call);
      if (!isRefusal(renewed)) return await this.#served(connection, port, nextCfg(renewed), options);
    }
  }

  async deletePort(
    device: string,
    { only = {}, ...options }: AbortOptions & { readonly only?: Readonly<Record<string, string>> } = {},
  ): Promise<void> {
    await using connection = await this.#open(options);
    const call = { ...options, timeoutMs: this.#timeoutMs };
    for (let tries = 1; ; tries += 1) {
      const [ports, interfaces] = await select(
        connection,
        [byName("Port", device, ["_uuid"]), byName("Interface", device, ["_uuid", "external_ids"])],
        call,
      );
      const [port] = ports?.rows ?? [];
      if (port === undefined) return;
      const [row] = interfaces?.rows ?? [];
      const ids = row === undefined ? {} : textMap(row["external_ids"]);
      if (Object.entries(only).some(([key, value]) => ids[key] !== value)) return;
      const results = await connection.transact(deleteOperations(uuidOf(port), row), call);
      if (!isRefusal(results)) return;
      if (results.error !== "timed out" || tries >= MAX_TRIES) throw refused(device, results);
    }
  }

  async ports(options: AbortOptions = {}): Promise<readonly OvsPortState[]> {
    await using connection = await this.#open(options);
    return await portsOf(connection, { ...options, timeoutMs: this.#timeoutMs });
  }

  async bridges(options: AbortOptions = {}): Promise<readonly OvsBridge[]> {
    await using connection = await this.#open(options);
    const all = (table: string, columns: readonly string[]) => ({ op: "select", table, where: [], columns });
    const [bridges, controllers] = await select(
      connection,
      [all("Bridge", ["name", "datapath_type", "controller"]), all("Controller", ["_uuid", "target", "is_connected"])],
      { ...options, timeoutMs: this.#timeoutMs },
    );
    const byId = new Map((controllers?.rows ?? []).map((row) => [uuidOf(row), row]));
    return (bridges?.rows ?? []).map((row) => ({
      name: textOf(row, "name"),
      datapath: textOf(row, "datapath_type"),
      controllers: uuids(row["controller"]).flatMap((id) => {
        const found = byId.get(id);
        if (found === undefined) return [];
        return [{ target: textOf(found, "target"), isConnected: found["is_connected"] === true }];
      }),
    }));
  }

  async externalIds(options: AbortOptions = {}): Promise<Readonly<Record<string, string>>> {
    await using connection = await this.#open(options);
    const look = { op: "select", table: "Open_vSwitch", where: [], columns: ["external_ids"] };
    const [found] = await select(connection, [look], { ...options, timeoutMs: this.#timeoutMs });
    return textMap(found?.rows[0]?.["external_ids"]);
  }

  async watch(onChange: () => void, { signal }: { readonly signal: AbortSignal }): Promise<never> {
    await using connection = await this.#open({ signal });
    const columns = { Bridge: ["name", "ports"], Port: ["name"], Interface: ["name", "external_ids"] };
    await connection.monitor(columns, onChange, { signal, timeoutMs: this.#timeoutMs });
    onChange();
    const aborted = new Promise<never>((_resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
      if (signal.aborted) reject(signal.reason as Error);
    });
    throw await Promise.race([connection.ended, aborted]);
  }

  #open(options: AbortOptions): Promise<OvsdbConnection> {
    return OvsdbConnection.open({ clock: this.#clock }, this.#path, options);
  }

  /** Waits until the switch has read the database to `wanted`, and serves the port. */
  async #served(
    connection: OvsdbConnection,
    { device, bridge }: OvsPort,
    wanted: number,
    { signal }: AbortOptions,
  ): Promise<void> {
    const backoff = new Backoff({ ...LOOK_MS });
    const endMs = this.#clock.monotonic() + this.#timeoutMs;
    const looks = [
      { op: "select", table: "Open_vSwitch", where: [], columns: ["cur_cfg"] },
      byName("Interface", device, ["ofport", "error"]),
    ];
    for (;;) {
      const [config, interfaces] = await select(connection, looks, { signal, timeoutMs: this.#timeoutMs });
      const [row] = interfaces?.rows ?? [];
      if (row === undefined)
        throw new OvsdbError("not-plugged", `port ${device} of ${bridge} was removed again at once`);
      const state = stateOf(row);
      const isRead = Number(optional(config?.rows[0] ?? {}, "cur_cfg")) >= wanted;
      if (isRead && state.error !== "")
        throw new OvsdbError("not-plugged", `Open vSwitch does not serve port ${device} of ${bridge}: ${state.error}`);
      if (isRead && state.ofport !== undefined) return;
      if (this.#clock.monotonic() >= endMs)
        throw new OvsdbError(
          "timeout",
          `Open vSwitch has not taken port ${device} of ${bridge} within ${this.#timeoutMs} ms: is ovs-vswitchd running?`,
        );
      await sleep(backoff.next(), { signal, clock: this.#clock });
    }
  }
}

/**
 * One transaction for a port: the agent of Neutron would skip a port that gets its external ids later (docs/spec/vpc-nics.md#8.4). The two
 * waits make it safe against others: the bridge is there, and no port of that name is.
 */
export function addOperations({ bridge, device, externalIds }: OvsPort): readonly OvsdbOperation[] {
  return [
    {
      op: "wait",
      table: "Bridge",
      timeout: 0,
      where: [["name", "==", bridge]],
      columns: ["name"],
      until: "==",
      rows: [{ name: bridge }],
    },
    {
      op: "wait",
      table: "Port",
      timeout: 0,
      where: [["name", "==", device]],
      columns: ["name"],
      until: "==",
      rows: [],
    },
    {
      op: "insert",
      table: "Interface",
      "uuid-name": "interface",
      row: { name: device, external_ids: mapOf(externalIds) },
    },
    {
      op: "insert",
      table: "Port",
      "uuid-name": "port",
      row: { name: device, interfaces: ["named-uuid", "interface"] },
    },
    {
      op: "mutate",
      table: "Bridge",
      where: [["name", "==", bridge]],
      mutations: [["ports", "insert", ["set", [["named-uuid", "port"]]]]],
    },
    ...bumpOperations(),
  ];
}

function renewOperations({ device, externalIds }: OvsPort, before: OvsPort): readonly OvsdbOperation[] {
  const where = [["name", "==", device]];
  return [
    {
      op: "wait",
      table: "Interface",
      timeout: 0,
      where,
      columns: ["external_ids"],
      until: "==",
      rows: [{ external_ids: mapOf(before.externalIds) }],
    },
    { op: "update", table: "Interface", where, row: { external_ids: mapOf(externalIds) } },
    ...bumpOperations(),
  ];
}

/** The rows of port and interface end with the last reference to them. */
function deleteOperations(port: string, row: OvsdbRow | undefined): readonly OvsdbOperation[] {
  const unchanged =
    row === undefined
      ? []
      : [
          {
            op: "wait",
            table: "Interface",
            timeout: 0,
            where: [["_uuid", "==", ["uuid", uuidOf(row)]]],
            columns: ["external_ids"],
            until: "==",
            rows: [{ external_ids: row["external_ids"] }],
          },
        ];
  return [
    ...unchanged,
    {
      op: "mutate",
      table: "Bridge",
      where: [["ports", "includes", ["uuid", port]]],
      mutations: [["ports", "delete", ["uuid", port]]],
    },
    ...bumpOperations(),
  ];
}

/** The last two operations of a change: the switch counts `cur_cfg` up to `next_cfg` when it has done what the database says. */
function bumpOperations(): readonly OvsdbOperation[] {
  return [
    { op: "mutate", table: "Open_vSwitch", where: [], mutations: [["next_cfg", "+=", 1]] },
    { op: "select", table: "Open_vSwitch", where: [], columns: ["next_cfg"] },
  ];
}

function nextCfg(results: readonly OperationResult[]): number {
  const value = optional(results.at(-1)?.rows[0] ?? {}, "next_cfg");
  if (typeof value !== "number") throw new OvsdbError("malformed", "the database of Open vSwitch has no next_cfg");
  return value;
}

function byName(table: string, name: string, columns: readonly string[]): OvsdbOperation {
  return { op: "select", table, where: [["name", "==", name]], columns };
}

async function select(
  connection: OvsdbConnection,
  operations: readonly OvsdbOperation[],
  options: AbortOptions & { readonly timeoutMs: number },
): Promise<readonly OperationResult[]> {
  const results = await connection.transact(operations, options);
  if (isRefusal(results)) throw refused("a list", results);
  return results;
}

async function portsOf(
  connection: OvsdbConnection,
  options: AbortOptions & { readonly timeoutMs: number },
): Promise<readonly OvsPortState[]> {
  const all = (table: string, columns: readonly string[]) => ({ op: "select", table, where: [], columns });
  const [bridges, ports, interfaces] = await select(
    connection,
    [
      all("Bridge", ["name", "ports"]),
      all("Port", ["_uuid", "interfaces"]),
      all("Interface", ["_uuid", "name", "external_ids", "ofport", "error"]),
    ],
    options,
  );
  const bridgeOf = new Map(
    (bridges?.rows ?? []).flatMap((row) => uuids(row["ports"]).map((id) => [id, textOf(row, "name")])),
  );
  const portOf = new Map((ports?.rows ?? []).flatMap((row) => uuids(row["interfaces"]).map((id) => [id, uuidOf(row)])));
  return (interfaces?.rows ?? []).flatMap((row): OvsPortState[] => {
    const bridge = bridgeOf.get(portOf.get(uuidOf(row)) ?? "");
    if (bridge === undefined) return [];
    return [{ bridge, device: textOf(row, "name"), externalIds: textMap(row["external_ids"]), ...stateOf(row) }];
  });
}

function stateOf(row: OvsdbRow): Pick<OvsPortState, "ofport" | "error"> {
  const [ofport, error] = [optional(row, "ofport"), optional(row, "error")];
  // -1: the switch could not open the device.
  return {
    ofport: typeof ofport === "number" && ofport > 0 ? ofport : undefined,
    error: typeof error === "string" ? error : "",
  };
}

function refused(what: string, { error, details }: Refusal): OvsdbError {
  const why = details === "" ? error : `${error}: ${details}`;
  return new OvsdbError("refused", `the database of Open vSwitch refuses ${what}: ${why}`);
}

function collision(port: OvsPort, taken: OvsPort): OvsdbError {
  const of = taken.externalIds["iface-id"];
  return new OvsdbError(
    "collision",
    `bridge ${taken.bridge} has a port ${port.device} already, ${of === undefined ? "without an iface-id" : `of ${of}`}; it should be free for ${port.externalIds["iface-id"] ?? "this port"}`,
  );
}
