import type { AbortOptions } from "#base/async";
import type { Clock } from "#base/clock";
import {
  type CreateOptions,
  type PortRequest,
  type PortResult,
  ProviderError,
  type ResolveOptions,
  type SavedDevice,
  type Vpc,
  type VpcPort,
  type VpcProvider,
  type VpcRef,
  type VpcSubnet,
} from "#cloud/vpc";

/** The fate of the next write: its request or its answer is lost, or it is done only later than its client has given up. */
export type Fate = "done" | "request-lost" | "answer-lost" | "late";

/** For how long a request that is `late` is under way after its client has given up, in milliseconds. */
const LATE_MS = 5000;
const NETWORK = "11111111-1111-4111-8111-111111111111";
const SUBNET = "22222222-2222-4222-8222-222222222222";

/** For how long the VPC is used as it was seen, in milliseconds. */
const KEPT_MS = 60_000;

/** A cloud in memory, with one network whose addresses never end. Every call takes a moment of the clock. The VPC is kept as providers keep it. */
export class FakeVpc implements VpcProvider {
  readonly name = "neutron";
  readonly ports = new Map<string, VpcPort>();
  /** The number of requests of each kind. */
  readonly calls: Record<string, number> = {};
  /** Ports and the hosts that they were bound to, in order. */
  readonly bound: (readonly [id: string, host: string])[] = [];
  isAway = false;
  /** Ports that cannot be deleted, since something else uses them. */
  readonly held = new Set<string>();
  /** True if ports without an address are left, as by a request whose answer is lost. */
  keepsEmpty = false;
  /** The error with which every deletion of a port fails. */
  deleteFault: ProviderError | undefined;
  /** The most ports that the project may have; what is under way counts. */
  maxPorts = Number.POSITIVE_INFINITY;
  /** Hosts with a live agent. */
  readonly hosts = new Set(["node-1"]);
  /** Asked for each write. */
  fate: () => Fate = () => "done";
  /** Called when ports are asked for. */
  onCreate: (requests: readonly PortRequest[]) => void = () => undefined;
  /** The id of the subnet of new ports' addresses, if it is not the last of {@link subnets}. */
  addressesIn: string | undefined;
  /** Addresses that the cloud adds to those of each new port, as of a subnet with SLAAC. */
  extra: VpcPort["addresses"] = [];
  /** The subnets of the network; new ports have an address of the last one. */
  readonly subnets: VpcSubnet[] = [
    {
      ...{ id: SUBNET, name: "subnet-1", networkId: NETWORK, cidr: "10.0.0.0/8", ipVersion: 4 },
      ...{ gateway: "10.0.0.1", nameservers: [], routes: [] },
    },
  ];
  readonly #clock: Clock;
  /** Requests that are done late have their addresses, MACs and places in the quota from the start, as in Neutron. */
  readonly #underWay = new Set<PortRequest>();
  #count = 0;
  #seen: { readonly atMs: number; readonly subnets: readonly VpcSubnet[] } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.ports.clear();
  }

  async resolve({ vpc }: VpcRef, { maxAgeMs = KEPT_MS }: ResolveOptions): Promise<Vpc> {
    await this.#read("resolve");
    if (vpc !== "vpc-1" && vpc !== "vpc-2")
      throw new ProviderError("VpcNotFound", `there is no network ${vpc}`, { retry: "slow" });
    const now = this.#clock.monotonic();
    if (this.#seen === undefined || now - this.#seen.atMs >= Math.min(maxAgeMs, KEPT_MS))
      this.#seen = { atMs: now, subnets: [...this.subnets] };
    const { subnets } = this.#seen;
    return {
      ref: vpc,
      projectId: vpc === "vpc-1" ? "p" : "p2",
      networks: new Map([[NETWORK, { mtu: 1450 }]]),
      subnets,
    };
  }

  async createPorts(requests: readonly PortRequest[], { pace }: CreateOptions): Promise<readonly PortResult[]> {
    await pace?.();
    this.onCreate(requests);
    try {
      return await this.#write("create", () => requests.map((request) => this.#make(request)), requests);
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      return requests.map(() => ({ error }));
    }
  }

  async findPorts(deviceIds: readonly string[], options?: AbortOptions): Promise<readonly VpcPort[]> {
    options?.signal?.throwIfAborted();
    await this.#read("find");
    return [...this.ports.values()].filter(({ deviceId }) => deviceIds.includes(deviceId));
  }

  async getPorts(ids: readonly string[], options?: AbortOptions): Promise<ReadonlyMap<string, VpcPort>> {
    options?.signal?.throwIfAborted();
    await this.#read("get");
    return new Map(ids.flatMap((id) => this.ports.get(id) ?? []).map((port) => [port.id, port]));
  }

  async pollPorts(deviceIds: readonly string[], options?: AbortOptions): Promise<readonly VpcPort[]> {
    options?.signal?.throwIfAborted();
    await this.#read("poll");
    return [...this.ports.values()].filter(({ deviceId }) => deviceIds.includes(deviceId));
  }

  async bindPort(
    id: string,
    { host, deviceId, deviceOwner }: { readonly host: string; readonly deviceId: string; readonly deviceOwner: string },
    { ifRevision }: { readonly ifRevision?: number | undefined },
  ): Promise<VpcPort> {
    return this.#write("bind", () => {
      const port = this.ports.get(id);
      if (port === undefined) throw new ProviderError("PortNotFound", `there is no port ${id}`, { retry: "slow" });
      if (ifRevision !== undefined && ifRevision !== port.revision) {
        throw new ProviderError("PortChanged", `port ${id} has another revision`, { retry: "at-once" });
      }
      this.bound.push([id, host]);
      return this.change(id, { deviceId, deviceOwner, binding: { host, vifType: this.#vifType(host) } });
    });
  }

  async setSecurityGroups(
    id: string,
    { securityGroups }: { readonly securityGroups: readonly string[] },
  ): Promise<void> {
    await this.#write("regroup", () => {
      if (!this.ports.has(id)) throw new ProviderError("PortNotFound", `there is no port ${id}`, { retry: "slow" });
      if (securityGroups.includes("no-such-group")) {
        throw new ProviderError("SecurityGroupNotFound", "there is no security group no-such-group", { retry: "slow" });
      }
      this.change(id, { securityGroups });
    });
  }

  async releasePort(id: string, { host, deviceId, deviceOwner }: SavedDevice): Promise<void> {
    await this.#write("release", () => {
      if (this.ports.has(id)) this.change(id, { deviceId, deviceOwner, binding: { host, vifType: "unbound" } });
    });
  }

  async deletePort(id: string, options?: AbortOptions): Promise<void> {
    options?.signal?.throwIfAborted();
    await this.#write("delete", () => {
      if (this.deleteFault !== undefined) throw this.deleteFault;
      if (this.held.has(id)) throw new ProviderError("DeleteConflict", `port ${id} is in use`, { retry: "slow" });
      this.ports.delete(id);
    });
  }

  async *eachOwned(deviceOwner: string): AsyncGenerator<VpcPort, void, undefined> {
    await this.#read("owned");
    yield* [...this.ports.values()].filter((port) => port.deviceOwner === deviceOwner);
  }

  async *eachTagged(): AsyncGenerator<VpcPort, void, undefined> {
    yield* [];
  }

  async describeHost(host: string): Promise<string> {
    await this.#read("agents");
    return this.hosts.has(host) ? `the agents of host ${host} are alive` : `there is no agent on host ${host}`;
  }

  /** A port of a user; returns its id. */
  addUserPort(): string {
    const identity = { name: "mine", deviceId: "", deviceOwner: "their:own", description: "", tags: [] };
    return this.#add(identity, "").id;
  }

  /** Changes a port, as its owner or an agent does. */
  change(id: string, change: Partial<VpcPort>): VpcPort {
    const port = this.ports.get(id);
    if (port === undefined) throw new Error(`there is no port ${id}`);
    const changed = { ...port, ...change, revision: (port.revision ?? 0) + 1 };
    this.ports.set(id, changed);
    return changed;
  }

  /** A port without an address is deleted at once, as by a provider that has got the answer. */
  #make(request: PortRequest): PortResult {
    const { identity, host, wish } = request;
    this.#underWay.delete(request);
    const error = this.#refusal(wish);
    if (error !== undefined) return { error };
    const port = this.#add(identity, host ?? "", wish);
    if (port.addresses.length > 0 || this.keepsEmpty) return { port };
    this.ports.delete(port.id);
    return { error: new ProviderError("NoAddress", "the network has no subnet", { retry: "slow" }) };
  }

  /** The reason why a port cannot be created, by the ports that exist and those under way. */
  #refusal({ ip, mac, subnet }: PortRequest["wish"]): ProviderError | undefined {
    if (subnet !== undefined && !this.subnets.some(({ id, name }) => id === subnet || name === subnet))
      return new ProviderError("SubnetNotFound", `the VPC has no subnet ${subnet}`, { retry: "slow" });
    const wishes = Array.from(this.#underWay, ({ wish }) => wish);
    const ports = [...this.ports.values()];
    const refused = (reason: "IpInUse" | "MacInUse" | "ProviderQuota") =>
      new ProviderError(reason, `${reason} at the fake cloud`, { retry: "slow" });
    const isExtra = this.extra.some((one) => one.ip === ip);
    const hasIp = (port: VpcPort): boolean => !isExtra && port.addresses.some((one) => one.ip === ip);
    if (ip !== undefined && (ports.some(hasIp) || wishes.some((wish) => wish.ip === ip))) return refused("IpInUse");
    const hasMac = (one: { readonly mac?: string | undefined }): boolean => one.mac === mac;
    if (mac !== undefined && (ports.some(hasMac) || wishes.some(hasMac))) return refused("MacInUse");
    return ports.length + wishes.length >= this.maxPorts ? refused("ProviderQuota") : undefined;
  }

  #add(
    identity: PortRequest["identity"],
    host: string,
    { securityGroups, ip, mac }: Pick<PortRequest["wish"], "securityGroups" | "ip" | "mac"> = { securityGroups: [] },
  ): VpcPort {
    this.#count += 1;
    const at = this.#count;
    const hex = at.toString(16).padStart(12, "0");
    const port: VpcPort = {
      ...identity,
      id: `00000000-0000-4000-8000-${hex}`,
      networkId: NETWORK,
      projectId: "p",
      status: "DOWN",
      mac: mac ?? `fa:16:3e:${hex.slice(6, 8)}:${hex.slice(8, 10)}:${hex.slice(10)}`,
      addresses: [
        ...this.subnets.slice(-1).map(({ id }) => ({
          subnetId: this.addressesIn ?? id,
          ip: ip !== undefined && !ip.includes(":") ? ip : `10.${(at >> 16) & 255}.${(at >> 8) & 255}.${at & 255}`,
        })),
        ...this.extra,
      ],
      createdAt: new Date(this.#clock.now()).toISOString(),
      revision: 1,
      securityGroups,
      binding: { host, vifType: this.#vifType(host) },
    };
    this.ports.set(port.id, port);
    return port;
  }

  #vifType(host: string): string {
    if (host === "") return "unbound";
    return this.hosts.has(host) ? "ovs" : "binding_failed";
  }

  async #read(kind: string): Promise<void> {
    this.calls[kind] = (this.calls[kind] ?? 0) + 1;
    await this.#moment(5);
    if (this.isAway) throw away();
  }

  async #write<Value>(kind: string, write: () => Value, creates: readonly PortRequest[] = []): Promise<Value> {
    this.calls[kind] = (this.calls[kind] ?? 0) + 1;
    const fate = this.isAway ? "request-lost" : this.fate();
    await this.#moment(20);
    if (fate === "request-lost") throw away();
    if (fate === "late") {
      const accepted = creates.filter(({ wish }) => this.#refusal(wish) === undefined);
      for (const request of accepted) this.#underWay.add(request);
      this.#clock.after(LATE_MS, () => {
        try {
          write();
        } catch (error) {
          // Nobody hears of it any more.
          if (!(error instanceof ProviderError)) throw error;
        }
      });
      throw away();
    }
    const value = write();
    if (fate === "answer-lost") throw away();
    return value;
  }

  #moment(ms: number): Promise<void> {
    return new Promise((resolve) => void this.#clock.after(ms, resolve));
  }
}

function away(): ProviderError {
  return new ProviderError("ProviderUnavailable", "no answer", { retry: "fast", isAmbiguous: true });
}
