import { type AbortOptions, Semaphore } from "#base/async";
import type { Clock } from "#base/clock";
import type { AlcorClient, AlcorPort, AlcorPortDraft } from "#cloud/alcor";
import { type CloudError, isCloudError } from "#cloud/rest";
import { ProviderError, type ProviderReason, type Retry } from "../errors.ts";
import { planPort } from "../neutron/plan-port.ts";
import { portOf, subnetOf } from "../port-of.ts";
import type {
  CreateOptions,
  PortRequest,
  PortResult,
  ResolveOptions,
  SavedDevice,
  Vpc,
  VpcPort,
  VpcProvider,
  VpcRef,
} from "../provider.ts";
import { ResolveCache } from "../resolve-cache.ts";
import { uuidV5 } from "../uuid.ts";

/** Requests that create ports at a time. A client has 16 connections, and other requests, which are short, need some meanwhile. */
const CREATES_AT_ONCE = 6;
/** Requests at a time that look for ports of one device each. */
const LOOKS_AT_ONCE = 8;
/** The prefix by which the agent finds the network namespaces of VPCs; the name has no hyphen after `ns` (docs/spec/vpc-nics.md#6.6). */
const DEFAULT_NS_PREFIX = "vpc-ns";
/** Characters of a port's id in the name of its device: with `veth` they are 15, the most that the kernel takes. */
const ID_IN_NAME = 11;

export interface AlcorProviderDeps {
  readonly alcor: AlcorClient;
  readonly clock: Clock;
}

export interface AlcorProviderOptions {
  readonly name: string;
  /** The project whose ports these are. */
  readonly projectId: string;
  /** The beginning of the names of VPCs' network namespaces. Default `vpc-ns`. */
  readonly nsPrefix?: string | undefined;
  readonly allowsGatewayAddress?: boolean | undefined;
  /** Ended with the provider. */
  readonly resources?: readonly AsyncDisposable[] | undefined;
}

/** Ports of one project of Alcor. Their ids follow from pod and NIC, so that no failure makes two of them. */
export class AlcorProvider implements VpcProvider {
  readonly name: string;
  readonly #alcor: AlcorClient;
  readonly #options: AlcorProviderOptions;
  readonly #vpcs: ResolveCache<Vpc>;
  readonly #creating = new Semaphore(CREATES_AT_ONCE);
  readonly #asking = new Semaphore(LOOKS_AT_ONCE);
  readonly #ended = new AbortController();

  constructor({ alcor, clock }: AlcorProviderDeps, options: AlcorProviderOptions) {
    this.name = options.name;
    this.#alcor = alcor;
    this.#options = options;
    this.#vpcs = new ResolveCache({ clock });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended.abort();
    for (const resource of this.#options.resources ?? []) await resource[Symbol.asyncDispose]();
  }

  async resolve(ref: VpcRef, options: ResolveOptions): Promise<Vpc> {
    return this.#vpcs.get(ref.vpc, () => this.#resolve(ref), options);
  }

  async createPorts(requests: readonly PortRequest[], { signal, pace }: CreateOptions): Promise<readonly PortResult[]> {
    return Promise.all(
      requests.map((request) =>
        this.#creating.run(
          async () => {
            await pace?.();
            return this.#create(request, signal);
          },
          { signal },
        ),
      ),
    );
  }

  async findPorts(deviceIds: readonly string[], { signal }: AbortOptions): Promise<readonly VpcPort[]> {
    const found = await Promise.all(
      deviceIds.map((id) =>
        this.#asking.run(() => translated(this.#alcor.listPorts("device_id", id, { signal })), { signal }),
      ),
    );
    // A manager that does not know the field answers with all ports.
    return found.flatMap((ports, at) => ports.filter((port) => port.deviceId === deviceIds[at])).map(alcorPort);
  }

  async pollPorts(deviceIds: readonly string[], options: AbortOptions): Promise<readonly VpcPort[]> {
    return this.findPorts(deviceIds, options);
  }

  async getPorts(ids: readonly string[], { signal }: AbortOptions): Promise<ReadonlyMap<string, VpcPort>> {
    const found = await Promise.all(
      ids.map((id) => this.#asking.run(() => unlessGone(this.#alcor.getPort(id, { signal })), { signal })),
    );
    return new Map(found.flatMap((port) => (port === undefined ? [] : [[port.id, alcorPort(port)] as const])));
  }

  async bindPort(
    id: string,
    { host, deviceId, deviceOwner }: { readonly host: string; readonly deviceId: string; readonly deviceOwner: string },
    { signal, ifRevision }: AbortOptions & { readonly ifRevision?: number | undefined },
  ): Promise<VpcPort> {
    if (ifRevision !== undefined) await this.#checkRevision(id, ifRevision, signal);
    const change = { "binding:host_id": host, device_id: deviceId, device_owner: deviceOwner };
    return alcorPort(await translated(this.#alcor.updatePort(id, change, { signal })));
  }

  /** Alcor takes ids alone, and has no group for a port that names none. */
  async setSecurityGroups(
    id: string,
    { securityGroups }: { readonly securityGroups: readonly string[] },
    { signal }: AbortOptions,
  ): Promise<void> {
    await translated(this.#alcor.updatePort(id, { security_groups: securityGroups }, { signal }));
  }

  async releasePort(id: string, { host, deviceId, deviceOwner }: SavedDevice, { signal }: AbortOptions): Promise<void> {
    const change = { "binding:host_id": host, device_id: deviceId, device_owner: deviceOwner };
    await unlessGone(this.#alcor.updatePort(id, change, { signal }));
  }

  async deletePort(id: string, { signal }: AbortOptions): Promise<void> {
    await unlessGone(this.#alcor.deletePort(id, { signal }));
  }

  async *eachOwned(deviceOwner: string, { signal }: AbortOptions): AsyncGenerator<VpcPort, void, undefined> {
    const ports = await translated(this.#alcor.listPorts("device_owner", deviceOwner, { signal }));
    yield* ports.filter((port) => port.deviceOwner === deviceOwner).map(alcorPort);
  }

  /** Alcor has no tags. */
  async *eachTagged(): AsyncGenerator<VpcPort, void, undefined> {
    yield* [];
  }

  async describeHost(host: string): Promise<string> {
    return `Alcor does not tell of the agent of host ${host}`;
  }

  async #resolve({ vpc }: VpcRef): Promise<Vpc> {
    const { signal } = this.#ended;
    const { projectId } = this.#options;
    const all = await translated(this.#alcor.listVpcs({ signal }));
    const byId = all.filter(({ id }) => id === vpc.toLowerCase());
    const [network, other] = byId.length > 0 ? byId : all.filter(({ name }) => name === vpc);
    if (network === undefined) {
      throw new ProviderError("VpcNotFound", `project ${projectId} has no VPC ${vpc}`, { retry: "slow" });
    }
    if (other !== undefined) {
      throw new ProviderError(
        "AmbiguousVpc",
        `project ${projectId} has several VPCs named ${vpc}: write the id of one`,
        { retry: "slow" },
      );
    }
    const subnets = await translated(this.#alcor.listSubnets({ signal }));
    return {
      ref: vpc,
      projectId,
      networks: new Map([[network.id, { mtu: network.mtu }]]),
      subnets: subnets.filter(({ networkId }) => networkId === network.id).map(subnetOf),
    };
  }

  async #create(request: PortRequest, signal: AbortSignal | undefined): Promise<PortResult> {
    try {
      return { port: alcorPort(await translated(this.#alcor.createPort(this.#draft(request), { signal }))) };
    } catch (error) {
      if (error instanceof ProviderError) return { error };
      throw error;
    }
  }

  #draft(request: PortRequest): AlcorPortDraft {
    const { identity, wish } = request;
    const { "binding:vnic_type": _, tags: __, ...draft } = planPort(request, wish.securityGroups, this.#options);
    const nic = identity.name.replace(`nic-${identity.deviceId}-`, "");
    const id = uuidV5(identity.deviceId, nic);
    const { nsPrefix = DEFAULT_NS_PREFIX } = this.#options;
    return {
      ...draft,
      id,
      veth_name: `veth${id.slice(0, ID_IN_NAME)}`,
      network_ns: `/run/netns/${nsPrefix}${draft.network_id}`,
    };
  }

  /** Alcor has no conditional requests, so another's change in the next moment is not seen. */
  async #checkRevision(id: string, revision: number, signal: AbortSignal | undefined): Promise<void> {
    const port = await translated(this.#alcor.getPort(id, { signal }));
    if (port.revision === undefined || port.revision === revision) return;
    const text = `port ${id} has revision ${port.revision}, not ${revision}`;
    throw new ProviderError("PortChanged", text, { retry: "at-once" });
  }
}

/** Ready is a device that appears on the host, so a port with a host can be plugged. */
function alcorPort(port: AlcorPort): VpcPort {
  const one = portOf(port);
  const vifType = port.vifType === "" && port.host !== "" ? "alcor" : port.vifType;
  const device = { vethName: port.vethName || undefined, netns: port.networkNs || undefined };
  return { ...one, binding: { ...one.binding, vifType, ...device } };
}

/** Explains an error by its HTTP status, because Alcor's texts are not stable (docs/spec/vpc-nics.md#6.6). */
function explain(error: CloudError): readonly [ProviderReason, Retry] {
  switch (error.code) {
    case "precondition":
      // The fixed addresses: taken, or not of the subnet.
      return ["IpInUse", "slow"];
    case "invalid":
      return ["BadRequest", "never"];
    case "not-found":
      return ["PortNotFound", "slow"];
    case "conflict":
      return ["DeleteConflict", "slow"];
    case "unauthorized":
      return ["AuthFailed", "slow"];
    case "forbidden":
      return ["Unauthorized", "slow"];
    case "over-limit":
      return ["ProviderQuota", "slow"];
    case "unavailable":
    case "unreachable":
    case "timeout":
    case "circuit-open":
    case "bad-response":
      return ["ProviderUnavailable", "fast"];
  }
}

async function translated<Value>(work: Promise<Value>): Promise<Value> {
  try {
    return await work;
  } catch (error) {
    if (!isCloudError(error)) throw error;
    const [reason, retry] = explain(error);
    throw ProviderError.of(error, reason, retry);
  }
}

async function unlessGone<Value>(work: Promise<Value>): Promise<Value | undefined> {
  try {
    return await translated(work);
  } catch (error) {
    if (error instanceof ProviderError && error.code === "PortNotFound") return undefined;
    throw error;
  }
}
