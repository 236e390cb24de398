import { type AbortOptions, Semaphore } from "#base/async";
import type { Clock } from "#base/clock";
import { TokenBucket } from "#base/rate-limit";
import type {
  GetOptions,
  PortRequest,
  PortResult,
  ResolveOptions,
  SavedDevice,
  SecurityGroupsChange,
  Vpc,
  VpcPort,
  VpcProvider,
  VpcRef,
} from "#cloud/vpc";
import { notLeading } from "../errors.ts";

/** Requests to a provider (docs/spec/vpc-nics.md#5.1, #5.4). */
const RATE_PER_SECOND = 20;
const BURST = 40;
const AT_ONCE = 8;
const DELETES_AT_ONCE = 4;
/** Projects whose rate is remembered; the one that has been known longest is forgotten first. */
const MAX_PROJECTS = 1000;

export interface GuardDeps {
  readonly provider: VpcProvider;
  readonly clock: Clock;
  /** Returns true if no other process can lead yet, by this process's own clock; asked right before each request. */
  readonly isLeading: () => boolean;
}

/**
 * A provider that is asked only while this process leads, and not too often. A process that was stopped for a while finds out here, before
 * its timers tell, that another one may lead. Rejects with `not-leading` then.
 */
export class GuardedProvider implements VpcProvider {
  readonly name: string;
  readonly #deps: GuardDeps;
  /** The bucket of requests about known ports, whose project is not known. */
  readonly #bucket: TokenBucket;
  /** The bucket of polls of ports, which must not wait for changes of others' ports. */
  readonly #looks: TokenBucket;
  /** The buckets of requests that create ports, by project. */
  readonly #creates = new Map<string, TokenBucket>();
  readonly #all = new Semaphore(AT_ONCE);
  readonly #deletes = new Semaphore(DELETES_AT_ONCE);

  constructor(deps: GuardDeps) {
    this.#deps = deps;
    this.name = deps.provider.name;
    this.#bucket = this.#newBucket();
    this.#looks = this.#newBucket();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#deps.provider[Symbol.asyncDispose]();
  }

  async resolve(ref: VpcRef, options: ResolveOptions): Promise<Vpc> {
    // Its answers are kept, so it is not paced.
    this.#check();
    return this.#deps.provider.resolve(ref, options);
  }

  /** One call makes many requests, and can take minutes: each of them waits for its turn, and the call holds no place of others. The provider limits how many are under way. */
  async createPorts(requests: readonly PortRequest[], options: AbortOptions): Promise<readonly PortResult[]> {
    const bucket = this.#createsOf(requests[0]?.vpc.projectId ?? "");
    const pace = async (): Promise<void> => {
      await bucket.take(options);
      this.#check();
    };
    this.#check();
    return this.#deps.provider.createPorts(requests, { ...options, pace });
  }

  async findPorts(deviceIds: readonly string[], options: AbortOptions): Promise<readonly VpcPort[]> {
    return this.#paced(() => this.#deps.provider.findPorts(deviceIds, options), options);
  }

  async getPorts(ids: readonly string[], options: GetOptions): Promise<ReadonlyMap<string, VpcPort>> {
    const get = () => this.#deps.provider.getPorts(ids, options);
    return options.isLook === true ? this.#look(get, options) : this.#paced(get, options);
  }

  async pollPorts(deviceIds: readonly string[], options: AbortOptions): Promise<readonly VpcPort[]> {
    return this.#look(() => this.#deps.provider.pollPorts(deviceIds, options), options);
  }

  async bindPort(
    id: string,
    binding: { readonly host: string; readonly deviceId: string; readonly deviceOwner: string },
    options: AbortOptions & { readonly ifRevision?: number | undefined },
  ): Promise<VpcPort> {
    return this.#paced(() => this.#deps.provider.bindPort(id, binding, options), options);
  }

  async setSecurityGroups(id: string, groups: SecurityGroupsChange, options: AbortOptions): Promise<void> {
    await this.#paced(() => this.#deps.provider.setSecurityGroups(id, groups, options), options);
  }

  async releasePort(id: string, saved: SavedDevice, options: AbortOptions): Promise<void> {
    await this.#paced(() => this.#deps.provider.releasePort(id, saved, options), options);
  }

  async deletePort(id: string, options: AbortOptions): Promise<void> {
    await this.#deletes.run(() => this.#paced(() => this.#deps.provider.deletePort(id, options), options), options);
  }

  async *eachOwned(deviceOwner: string, options: AbortOptions): AsyncGenerator<VpcPort, void, undefined> {
    this.#check();
    yield* this.#deps.provider.eachOwned(deviceOwner, options);
  }

  async *eachTagged(tag: string, options: AbortOptions): AsyncGenerator<VpcPort, void, undefined> {
    this.#check();
    yield* this.#deps.provider.eachTagged(tag, options);
  }

  async describeHost(host: string, options: AbortOptions): Promise<string> {
    return this.#paced(() => this.#deps.provider.describeHost(host, options), options);
  }

  async #look<Value>(request: () => Promise<Value>, options: AbortOptions): Promise<Value> {
    await this.#looks.take(options);
    this.#check();
    return request();
  }

  async #paced<Value>(request: () => Promise<Value>, options: AbortOptions): Promise<Value> {
    return this.#all.run(async () => {
      await this.#bucket.take(options);
      this.#check();
      return request();
    }, options);
  }

  #createsOf(project: string): TokenBucket {
    const known = this.#creates.get(project);
    if (known !== undefined) return known;
    const [oldest] = this.#creates.keys();
    if (oldest !== undefined && this.#creates.size >= MAX_PROJECTS) this.#creates.delete(oldest);
    const made = this.#newBucket();
    this.#creates.set(project, made);
    return made;
  }

  #newBucket(): TokenBucket {
    return new TokenBucket({ ratePerSecond: RATE_PER_SECOND, burst: BURST, clock: this.#deps.clock });
  }

  #check(): void {
    if (!this.#deps.isLeading()) throw notLeading();
  }
}
