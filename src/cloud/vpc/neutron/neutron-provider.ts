import { type AbortOptions, Semaphore } from "#base/async";
import type { Clock } from "#base/clock";
import {
  MAX_IDS,
  type NeutronClient,
  type NeutronPort,
  type PortDraft,
  type PortFilter,
  STATUS_FIELDS,
} from "#cloud/neutron";
import { isCloudError } from "#cloud/rest";
import { makeByHalves } from "../by-halves.ts";
import { ProviderError } from "../errors.ts";
import { portOf } from "../port-of.ts";
import type {
  CreateOptions,
  PortQuota,
  PortRequest,
  PortResult,
  ProviderAgent,
  ProviderDiagnosis,
  ResolveOptions,
  SavedDevice,
  SecurityGroupsChange,
  Vpc,
  VpcPort,
  VpcProvider,
  VpcRef,
} from "../provider.ts";
import { ResolveCache } from "../resolve-cache.ts";
import { addressesOf, automaticNetworks, batches } from "./batches.ts";
import { BulkSize } from "./bulk-size.ts";
import { translate } from "./faults.ts";
import { planPort } from "./plan-port.ts";
import { resolveVpc } from "./resolve-vpc.ts";
import { SecurityGroups } from "./security-groups.ts";
import { translated, unlessGone } from "./translated.ts";

/** Requests of a project that create ports at a time: more make the server wait for its database, not faster (docs/spec/vpc-nics.md#5.4). */
const CREATES_AT_ONCE = 2;
/** Those of all projects. A client has 16 connections, and other requests, which are short, need some meanwhile. */
const CREATES_AT_ALL = 6;
/**
 * Look-ups of names, and counts of ports, at a time. A pod can name hundreds of groups, many projects can make ports at once, and others' requests need
 * connections meanwhile.
 */
const LOOKS_AT_ONCE = 4;
/** Networks with at most this number of addresses have their ports counted before several are made by one request. */
const COUNTED = 4096;
/** Addresses that a network must have left after such a request: others make ports there at the same time. */
const RESERVE = 64;
/** The extension without which tags in a request that creates several ports are dropped without a word. */
const TAGS_ON_CREATE = "tag-ports-during-bulk-creation";
/** The group that every project has, and that a new port gets which names none. */
const DEFAULT_GROUP = "default";
/** The extension by which ports have tags. */
const TAGS = "standard-attr-tag";

export interface NeutronProviderDeps {
  readonly neutron: NeutronClient;
  readonly clock: Clock;
}

export interface NeutronProviderOptions {
  readonly name: string;
  /** The meaning of a VPC: a network (default), or a project with all its networks. */
  readonly vpcIs?: "network" | "project" | undefined;
  readonly allowsGatewayAddress?: boolean | undefined;
  /** Called after each request that has created ports: `vpc_bulk_size`. */
  readonly onCreate?: ((count: number) => void) | undefined;
  /** Ended with the provider. */
  readonly resources?: readonly AsyncDisposable[] | undefined;
}

/** Ports of OpenStack Neutron. */
export class NeutronProvider implements VpcProvider, ProviderDiagnosis {
  readonly name: string;
  readonly diagnosis: ProviderDiagnosis = this;
  readonly #neutron: NeutronClient;
  readonly #options: NeutronProviderOptions;
  readonly #vpcs: ResolveCache<Vpc>;
  readonly #groups: SecurityGroups;
  readonly #extensions: ResolveCache<ReadonlySet<string>>;
  readonly #creating = new Semaphore(CREATES_AT_ALL);
  /** The semaphores of creations, by project; idle ones are removed. */
  readonly #creatingOf = new Map<string, Semaphore>();
  readonly #looking = new Semaphore(LOOKS_AT_ONCE);
  readonly #bulk: BulkSize;
  readonly #ended = new AbortController();

  constructor({ neutron, clock }: NeutronProviderDeps, options: NeutronProviderOptions) {
    this.name = options.name;
    this.#neutron = neutron;
    this.#options = options;
    this.#vpcs = new ResolveCache({ clock });
    this.#extensions = new ResolveCache({ clock });
    this.#bulk = new BulkSize({ clock });
    this.#groups = new SecurityGroups({
      neutron,
      clock,
      looked: (look) => this.#looked(look),
      signal: this.#ended.signal,
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#ended.abort();
    for (const resource of this.#options.resources ?? []) await resource[Symbol.asyncDispose]();
  }

  async resolve(ref: VpcRef, options: ResolveOptions): Promise<Vpc> {
    const { signal } = this.#ended;
    const neutron = this.#neutron;
    const isProject = this.#options.vpcIs === "project";
    return this.#vpcs.get(
      `${ref.projectId ?? ""}/${ref.vpc}`,
      () => this.#looked(() => resolveVpc(ref, { neutron, isProject, signal })),
      options,
    );
  }

  async createPorts(requests: readonly PortRequest[], { signal, pace }: CreateOptions): Promise<readonly PortResult[]> {
    const planned = await Promise.all(requests.map((request) => this.#plan(request, signal)));
    const drafts = planned.flatMap((plan) => ("draft" in plan ? [plan.draft] : []));
    const made = new Map<string, PortResult>();
    const automatic = automaticNetworks(requests);
    const scarce = await this.#scarceNetworks(
      requests,
      drafts.filter(({ network_id: network }) => !automatic.has(network)),
      { signal, pace },
    );
    await Promise.all(
      batches(drafts, this.#bulk.size, new Set([...automatic, ...scarce])).map((batch) =>
        this.#inTurn(
          batch[0]?.project_id ?? "",
          () => this.#createBatch(batch, { made, automatic }, { signal, pace }),
          {
            signal,
          },
        ),
      ),
    );
    return planned.map((plan) => ("error" in plan ? plan : resultOf(made, plan.draft.name)));
  }

  async #inTurn(project: string, work: () => Promise<void>, options: AbortOptions): Promise<void> {
    const own = this.#creatingOf.get(project) ?? new Semaphore(CREATES_AT_ONCE);
    this.#creatingOf.set(project, own);
    try {
      await own.run(() => this.#creating.run(work, options), options);
    } finally {
      const isIdle = own.isIdle(CREATES_AT_ONCE) && this.#creatingOf.get(project) === own;
      if (isIdle) this.#creatingOf.delete(project);
    }
  }

  async findPorts(deviceIds: readonly string[], options: AbortOptions): Promise<readonly VpcPort[]> {
    return this.#byDevices(deviceIds, [], options);
  }

  async pollPorts(deviceIds: readonly string[], options: AbortOptions): Promise<readonly VpcPort[]> {
    return this.#byDevices(deviceIds, STATUS_FIELDS, options);
  }

  async getPorts(ids: readonly string[], { signal }: AbortOptions): Promise<ReadonlyMap<string, VpcPort>> {
    const found: VpcPort[] = [];
    for (const some of chunks(ids, MAX_IDS)) {
      found.push(...(await translated(this.#neutron.listPorts({ ids: some }, { signal }))).map(portOf));
    }
    return new Map(found.map((port) => [port.id, port]));
  }

  async bindPort(
    id: string,
    { host, deviceId, deviceOwner }: { readonly host: string; readonly deviceId: string; readonly deviceOwner: string },
    { signal, ifRevision }: AbortOptions & { readonly ifRevision?: number | undefined },
  ): Promise<VpcPort> {
    const change = { "binding:host_id": host, device_id: deviceId, device_owner: deviceOwner };
    return portOf(await translated(this.#neutron.updatePort(id, change, { signal, ifRevision })));
  }

  async setSecurityGroups(
    id: string,
    { vpc, securityGroups, trustsGroups }: SecurityGroupsChange,
    { signal }: AbortOptions,
  ): Promise<void> {
    // A change to no group at all would leave the port without filters, not with those of a new port.
    const refs = securityGroups.length === 0 ? [DEFAULT_GROUP] : securityGroups;
    const groups = await Promise.all(
      refs.map((ref) => this.#groups.idOf(ref, { projectId: vpc.projectId, trustsGroups }, signal)),
    );
    await translated(this.#neutron.updatePort(id, { security_groups: groups }, { signal }));
  }

  async releasePort(id: string, { host, deviceId, deviceOwner }: SavedDevice, { signal }: AbortOptions): Promise<void> {
    const change = { "binding:host_id": host, device_id: deviceId, device_owner: deviceOwner };
    await unlessGone(this.#neutron.updatePort(id, change, { signal }));
  }

  async deletePort(id: string, { signal }: AbortOptions): Promise<void> {
    await unlessGone(this.#neutron.deletePort(id, { signal }));
  }

  eachOwned(deviceOwner: string, options: AbortOptions): AsyncIterable<VpcPort> {
    return this.#each({ deviceOwner }, options);
  }

  async *eachTagged(tag: string, options: AbortOptions): AsyncGenerator<VpcPort, void, undefined> {
    // A server that does not know the condition may answer with all ports.
    if ((await translated(this.#knownExtensions(options.signal))).has(TAGS)) yield* this.#each({ tag }, options);
  }

  async *#each(filter: PortFilter, { signal }: AbortOptions): AsyncGenerator<VpcPort, void, undefined> {
    try {
      for await (const port of this.#neutron.eachPort(filter, { signal })) yield portOf(port);
    } catch (error) {
      throw translate(error);
    }
  }

  async describeHost(host: string, { signal }: AbortOptions): Promise<string> {
    const agents = await translated(this.#neutron.listAgents({ host, signal }));
    if (agents.length === 0) {
      const all = await translated(this.#neutron.listAgents({ signal }));
      const hosts = [...new Set(all.map((agent) => agent.host))].sort().slice(0, 10);
      return `there is no agent on host ${host}; hosts with agents: ${hosts.join(", ") || "none"}`;
    }
    const dead = agents.filter(({ isAlive }) => !isAlive).map(({ kind }) => kind);
    if (dead.length > 0) return `on host ${host} not alive: ${dead.join(", ")}`;
    return `the agents of host ${host} are alive: ${agents.map(({ kind }) => kind).join(", ")}`;
  }

  /** The names of the extensions that the server has. Rejects as the methods of {@link VpcProvider}. */
  async extensions(options: AbortOptions): Promise<ReadonlySet<string>> {
    return await translated(this.#neutron.listExtensions(options));
  }

  /** The agents of all hosts, for a diagnosis. Rejects as the methods of {@link VpcProvider}. */
  async agents({ signal }: AbortOptions): Promise<readonly ProviderAgent[]> {
    return await translated(this.#neutron.listAgents({ signal }));
  }

  /** The quota of ports of a project; `limit` is absent without one. Rejects as the methods of {@link VpcProvider}. */
  async portQuota(projectId: string, options: AbortOptions): Promise<PortQuota> {
    return await translated(this.#neutron.portQuota(projectId, options));
  }

  async #byDevices(
    deviceIds: readonly string[],
    fields: readonly string[],
    { signal }: AbortOptions,
  ): Promise<readonly VpcPort[]> {
    const found: VpcPort[] = [];
    for (const some of chunks(deviceIds, MAX_IDS)) {
      found.push(...(await translated(this.#neutron.listPorts({ deviceIds: some }, { signal, fields }))).map(portOf));
    }
    return found;
  }

  async #plan(
    request: PortRequest,
    signal: AbortSignal | undefined,
  ): Promise<{ readonly draft: PortDraft } | { readonly error: ProviderError }> {
    const scope = { projectId: request.vpc.projectId, trustsGroups: request.wish.trustsGroups };
    try {
      const groups = await Promise.all(request.wish.securityGroups.map((ref) => this.#groups.idOf(ref, scope, signal)));
      return { draft: planPort(request, groups, this.#options) };
    } catch (error) {
      if (error instanceof ProviderError) return { error };
      throw error;
    }
  }

  /** A look-up in its turn. */
  async #looked<Value>(look: () => Promise<Value>): Promise<Value> {
    return this.#looking.run(look, { signal: this.#ended.signal });
  }

  /** The networks in which a request for several of the ports may find too few addresses. */
  async #scarceNetworks(
    requests: readonly PortRequest[],
    drafts: readonly PortDraft[],
    { signal, pace }: CreateOptions,
  ): Promise<ReadonlySet<string>> {
    const scarce = new Set<string>();
    for (const [id, wanted] of Map.groupBy(drafts, ({ network_id: network }) => network)) {
      const subnets = requests.find(({ vpc }) => vpc.networks.has(id))?.vpc.subnets ?? [];
      const capacity = addressesOf(subnets.filter(({ networkId }) => networkId === id));
      if (wanted.length < 2 || capacity > COUNTED) continue;
      await pace?.();
      try {
        const count = () => this.#neutron.listPorts({ networkId: id }, { signal, fields: ["id"] });
        const used = await this.#looking.run(count, { signal });
        if (capacity - used.length < wanted.length + RESERVE) scarce.add(id);
      } catch (error) {
        if (!isCloudError(error)) throw error;
        // The requests themselves will tell what is wrong.
        scarce.add(id);
      }
    }
    return scarce;
  }

  async #createBatch(
    batch: readonly PortDraft[],
    { made, automatic }: { readonly made: Map<string, PortResult>; readonly automatic: ReadonlySet<string> },
    options: CreateOptions,
  ): Promise<void> {
    const ends = await makeByHalves(batch, (drafts) => this.#create(drafts, automatic, options), isRefusal);
    for (const [at, draft] of batch.entries()) {
      const end = ends[at];
      if (end === undefined) continue;
      if ("value" in end) made.set(draft.name, await this.#checked(end.value, options.signal));
      else made.set(draft.name, { error: asProviderError(end.error) });
    }
  }

  /** Makes all ports or none; they are in the order of the drafts. */
  async #create(
    drafts: readonly PortDraft[],
    automatic: ReadonlySet<string>,
    { signal, pace }: CreateOptions,
  ): Promise<readonly NeutronPort[]> {
    const tagsOnCreate = (await this.#knownExtensions(signal)).has(TAGS_ON_CREATE);
    const bodies = tagsOnCreate ? drafts : drafts.map(({ tags: _, ...draft }) => draft);
    const [first, second] = bodies;
    await pace?.();
    const isSingle = first !== undefined && second === undefined && automatic.has(first.network_id);
    const ports = await this.#bulk.measure(async () =>
      isSingle ? [await this.#neutron.createPort(first, { signal })] : this.#neutron.createPorts(bodies, { signal }),
    );
    this.#options.onCreate?.(drafts.length);
    const byName = new Map(ports.map((port) => [port.name, port]));
    const inOrder = drafts.flatMap(({ name }) => byName.get(name) ?? []);
    if (inOrder.length !== drafts.length) {
      const text = `Neutron made ${inOrder.length} of ${drafts.length} ports that it says to have made`;
      throw new ProviderError("ProviderUnavailable", text, { retry: "fast", isAmbiguous: true });
    }
    if (!tagsOnCreate)
      for (const [at, { tags = [] }] of drafts.entries()) await this.#tag(inOrder[at]?.id, tags, signal);
    return inOrder;
  }

  /** Tags are for people and for the collection of orphans; the ports' identity is in other fields, so a failure costs nothing. */
  async #tag(id: string | undefined, tags: readonly string[], signal: AbortSignal | undefined): Promise<void> {
    if (id === undefined || tags.length === 0) return;
    try {
      await this.#neutron.setTags(id, tags, { signal });
    } catch (error) {
      if (!isCloudError(error)) throw error;
    }
  }

  async #knownExtensions(signal: AbortSignal | undefined): Promise<ReadonlySet<string>> {
    return this.#extensions.get("", () => this.#neutron.listExtensions({ signal: this.#ended.signal }), { signal });
  }

  /** A network without subnets gives a port without an address, which is of no use to a pod. */
  async #checked(port: NeutronPort, signal: AbortSignal | undefined): Promise<PortResult> {
    if (port.fixedIps.length > 0) return { port: portOf(port) };
    const text = `network ${port.networkId} has no subnet that gives an address`;
    try {
      await unlessGone(this.#neutron.deletePort(port.id, { signal }));
    } catch (error) {
      if (!(error instanceof ProviderError)) throw error;
      // The others of the request have their ports.
      const left = `${text}, and port ${port.id} is left: ${error.message}`;
      return { error: new ProviderError("NoAddress", left, { retry: "slow", isAmbiguous: true, cause: error }) };
    }
    return { error: new ProviderError("NoAddress", text, { retry: "slow" }) };
  }
}

function chunks<Item>(items: readonly Item[], size: number): readonly (readonly Item[])[] {
  const count = Math.ceil(items.length / size);
  return Array.from({ length: count }, (_, at) => items.slice(at * size, (at + 1) * size));
}

/** True if nothing was made, and the fault can be that of one port of several. */
function isRefusal(error: unknown): boolean {
  return (
    isCloudError(error) && !error.isAmbiguous && !["circuit-open", "unauthorized", "forbidden"].includes(error.code)
  );
}

function asProviderError(error: unknown): ProviderError {
  const translatedError = translate(error);
  if (translatedError instanceof ProviderError) return translatedError;
  throw error;
}

function resultOf(made: ReadonlyMap<string, PortResult>, name: string): PortResult {
  const result = made.get(name);
  if (result === undefined) throw new Error(`port ${name} was asked for and has no result`);
  return result;
}
