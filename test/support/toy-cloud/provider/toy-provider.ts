import type { AbortOptions } from "#base/async";
import {
  type Cloud,
  type PortRequest,
  type PortResult,
  ProviderError,
  type SavedDevice,
  type SecurityGroupsChange,
  type Vpc,
  type VpcPort,
  type VpcProvider,
  type VpcRef,
} from "#cloud/vpc";

/** The namespace in which the cloud's agent makes devices. */
const AGENT_NETNS = "/run/netns/toy";
const NETWORK = "toy-network";
const SUBNET = "toy-subnet";

/** The kind of cloud: it has one VPC, named `toys`, and forgets its ports with the process. */
export const toyCloud: Cloud = {
  type: "toy",
  vifTypes: ["toy"],
  isReadyWhenPlugged: false,
  hasNamesOfAnyProject: () => false,
  open: (_deps, { name }) => new ToyCloud(name),
};

/** Ports in memory. `onBound` is the agent of a host: it is told of each port that is bound, and of each that loses its host. */
export class ToyCloud implements VpcProvider {
  readonly name: string;
  readonly ports = new Map<string, VpcPort>();
  isAway = false;
  onBound: (port: VpcPort) => void = () => undefined;
  #count = 0;

  constructor(name: string) {
    this.name = name;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.ports.clear();
  }

  async resolve({ vpc }: VpcRef, options: AbortOptions): Promise<Vpc> {
    this.#check(options);
    if (vpc !== "toys") throw new ProviderError("VpcNotFound", `the toys have no VPC ${vpc}`, { retry: "slow" });
    const subnet = { id: SUBNET, name: "box", networkId: NETWORK, cidr: "10.9.0.0/16", ipVersion: 4 } as const;
    return {
      ref: vpc,
      projectId: undefined,
      networks: new Map([[NETWORK, { mtu: 1400 }]]),
      subnets: [{ ...subnet, gateway: "10.9.0.1", nameservers: [], routes: [] }],
    };
  }

  async createPorts(requests: readonly PortRequest[], options: AbortOptions): Promise<readonly PortResult[]> {
    options.signal?.throwIfAborted();
    return requests.map((request) => (this.isAway ? { error: away() } : this.#create(request)));
  }

  async findPorts(deviceIds: readonly string[], options: AbortOptions): Promise<readonly VpcPort[]> {
    this.#check(options);
    return [...this.ports.values()].filter(({ deviceId }) => deviceIds.includes(deviceId));
  }

  pollPorts(deviceIds: readonly string[], options: AbortOptions): Promise<readonly VpcPort[]> {
    return this.findPorts(deviceIds, options);
  }

  async getPorts(ids: readonly string[], options: AbortOptions): Promise<ReadonlyMap<string, VpcPort>> {
    this.#check(options);
    return new Map(ids.flatMap((id) => this.ports.get(id) ?? []).map((port) => [port.id, port]));
  }

  async bindPort(
    id: string,
    { host, deviceId, deviceOwner }: SavedDevice,
    options: AbortOptions & { readonly ifRevision?: number | undefined },
  ): Promise<VpcPort> {
    this.#check(options);
    const { revision } = this.#find(id);
    if (options.ifRevision !== undefined && options.ifRevision !== revision)
      throw new ProviderError("PortChanged", `port ${id} has revision ${revision}`, { retry: "at-once" });
    return this.#change(id, { deviceId, deviceOwner, ...boundTo(id, host) });
  }

  async setSecurityGroups(id: string, { securityGroups }: SecurityGroupsChange, options: AbortOptions): Promise<void> {
    this.#check(options);
    this.#find(id);
    this.#change(id, { securityGroups });
  }

  async releasePort(id: string, { host, deviceId, deviceOwner }: SavedDevice, options: AbortOptions): Promise<void> {
    this.#check(options);
    if (this.ports.has(id)) this.#change(id, { deviceId, deviceOwner, ...boundTo(id, host) });
  }

  async deletePort(id: string, options: AbortOptions): Promise<void> {
    this.#check(options);
    const port = this.ports.get(id);
    this.ports.delete(id);
    if (port !== undefined) this.onBound({ ...port, ...boundTo(id, "") });
  }

  async *eachOwned(deviceOwner: string, options: AbortOptions): AsyncGenerator<VpcPort, void, undefined> {
    this.#check(options);
    yield* [...this.ports.values()].filter((port) => port.deviceOwner === deviceOwner);
  }

  /** It has no tags. */
  async *eachTagged(): AsyncGenerator<VpcPort, void, undefined> {
    yield* [];
  }

  async describeHost(host: string): Promise<string> {
    return `the toys do not tell of host ${host}`;
  }

  #create({ identity, wish, host }: PortRequest): PortResult {
    const refused = (reason: "IpInUse" | "SubnetNotFound", text: string): PortResult => ({
      error: new ProviderError(reason, text, { retry: "slow" }),
    });
    if (wish.subnet !== undefined && wish.subnet !== SUBNET && wish.subnet !== "box")
      return refused("SubnetNotFound", `the toys have no subnet ${wish.subnet}`);
    this.#count += 1;
    const { ip = `10.9.1.${this.#count}` } = wish;
    const isTaken = [...this.ports.values()].some(({ addresses }) => addresses.some((one) => one.ip === ip));
    if (isTaken) return refused("IpInUse", `address ${ip} is taken`);
    const id = `toy-${String(this.#count).padStart(4, "0")}`;
    const port: VpcPort = {
      ...identity,
      id,
      networkId: NETWORK,
      projectId: "",
      mac: wish.mac ?? `02:00:00:00:00:${this.#count.toString(16).padStart(2, "0")}`,
      addresses: [{ subnetId: SUBNET, ip }],
      createdAt: new Date(0).toISOString().replace("1970", "2026"),
      revision: 1,
      securityGroups: wish.securityGroups,
      ...boundTo(id, host ?? ""),
    };
    this.ports.set(id, port);
    if (host !== undefined) this.onBound(port);
    return { port };
  }

  #find(id: string): VpcPort {
    const port = this.ports.get(id);
    if (port === undefined) throw new ProviderError("PortNotFound", `there is no port ${id}`, { retry: "slow" });
    return port;
  }

  #change(id: string, change: Partial<VpcPort>): VpcPort {
    const before = this.#find(id);
    const port = { ...before, ...change, revision: (before.revision ?? 0) + 1 };
    this.ports.set(id, port);
    if (port.binding.host !== before.binding.host) this.onBound(port);
    return port;
  }

  #check({ signal }: AbortOptions): void {
    signal?.throwIfAborted();
    if (this.isAway) throw away();
  }
}

function away(): ProviderError {
  return new ProviderError("ProviderUnavailable", "no toys", { retry: "fast", isAmbiguous: true });
}

/** A port has its device in the agent's namespace as long as it is bound. */
function boundTo(id: string, host: string): Pick<VpcPort, "binding" | "status"> {
  if (host === "") return { status: "DOWN", binding: { host, vifType: "unbound" } };
  return { status: "ACTIVE", binding: { host, vifType: "toy", vethName: id, netns: AGENT_NETNS } };
}
