import type { ByteString } from "#kernel/nft-elements";
import { AffinityTimeouts, roundedTimeout } from "./affinity-timeouts.ts";
import { CompactMultimap } from "./compact-multimap.ts";
import { type FrontEnd, frontEndId } from "./front-end.ts";

/** Length of protocol and port, which follow the address in a front end's key. */
const PORT_KEY_BYTES = 8;

/** The elements that one Service requests in one family. */
export interface ServicePlan {
  readonly frontEnds: readonly FrontEnd[];
  /** Ids ({@link frontEndId}) of the front ends at externalIPs and load balancer addresses, which another Service may have too. */
  readonly external: ReadonlySet<string>;
  /** Requests for addresses that no Service can have, with the owner of each. */
  readonly refused: readonly { readonly frontEnd: FrontEnd; readonly owner: string }[];
  /** Keys of `cluster-ips`. */
  readonly clusterIPs: readonly ByteString[];
  /** Keys of `hairpin`: the Service's endpoints on this node. */
  readonly hairpinEndpoints: readonly ByteString[];
  /** Milliseconds since the epoch. If two Services claim one front end, the older Service holds it. */
  readonly createdAt: number;
}

interface Claim {
  readonly service: string;
  readonly createdAt: number;
  readonly frontEnd: FrontEnd;
  /** The address, if it is an externalIP or a load balancer address. */
  readonly external: ByteString | undefined;
}

/** A front end that a Service requests and does not get. */
export interface LostFrontEnd {
  readonly frontEnd: FrontEnd;
  readonly service: string;
  /** The Service that holds the front end, or has its address as cluster IP; absent: the address has an `owner`. */
  readonly holder?: string;
  /** `this node`, `loopback`, …: no Service can have the address. */
  readonly owner?: string;
}

/** Keys that may have changed since the last {@link WantedTable.takeChanged}. */
export interface ChangedKeys {
  /** See {@link frontEndId}. */
  readonly frontEnds: ReadonlySet<string>;
  readonly clusterIPs: ReadonlySet<ByteString>;
  readonly hairpinEndpoints: ReadonlySet<ByteString>;
}

/**
 * The wanted content of one family's table. A cluster IP belongs to its Service, with all ports, also if other Services claim the address.
 * Several Services may claim another address and port, mostly by externalIPs: the oldest Service holds it, or the first one by name if
 * their ages are equal. When the holder stops claiming it, the next Service gets it.
 */
export class WantedTable {
  readonly #services = new Map<string, ServicePlan>();
  /** Claims by front end; the holder is the first. */
  readonly #claims = new Map<string, Claim[]>();
  /** Front ends with several claims: few, if any. */
  readonly #contested = new Set<string>();
  readonly #clusterIPs = new ReferenceCounts();
  /** The Services of each cluster IP: one Service, except if the cluster has a fault. */
  readonly #owners = new CompactMultimap<ByteString>();
  /** The external front ends that are claimed at each address. */
  readonly #external = new CompactMultimap<ByteString>();
  /** Addresses that are both in `#owners` and in `#external`: few, if any. */
  readonly #overlaps = new Set<ByteString>();
  /** Services that request addresses which no Service can have. */
  readonly #refused = new Set<string>();
  readonly #hairpinEndpoints = new ReferenceCounts();
  readonly #timeouts = new AffinityTimeouts();
  #roundsTimeouts = false;
  #changedFrontEnds = new Set<string>();

  /** Replaces the plan of a Service; `undefined`: it was deleted. */
  set(service: string, plan: ServicePlan | undefined): void {
    const before = this.#services.get(service);
    if (before !== undefined) this.#release(service, before);
    if (plan === undefined) this.#services.delete(service);
    else this.#claim(service, plan);
    if (this.#timeouts.isCrowded !== this.#roundsTimeouts) this.#roundTimeouts(this.#timeouts.isCrowded);
  }

  /** Affinity timeouts are rounded up, because Services request more than `MAX_TIMEOUTS` different ones. */
  get roundsTimeouts(): boolean {
    return this.#roundsTimeouts;
  }

  /** The wanted front end; `undefined`: none. */
  frontEnd(id: string): FrontEnd | undefined {
    const holder = this.#holder(id);
    return holder === undefined ? undefined : this.#planned(holder);
  }

  /** Claims that are lost, for `explain` and the log. */
  *lostFrontEnds(): Generator<LostFrontEnd> {
    for (const id of this.#contested) {
      const holder = this.#holder(id);
      for (const claim of this.#claims.get(id) ?? []) if (claim !== holder) yield this.#lostFrontEnd(claim, holder);
    }
    for (const address of this.#overlaps) {
      for (const id of this.#external.get(address)) {
        if (this.#contested.has(id)) continue;
        for (const claim of this.#claims.get(id) ?? [])
          if (!this.#mayHold(claim)) yield this.#lostFrontEnd(claim, undefined);
      }
    }
    for (const service of this.#refused) {
      for (const { frontEnd, owner } of this.#services.get(service)?.refused ?? []) yield { frontEnd, service, owner };
    }
  }

  /** True if the Service is planned. */
  has(service: string): boolean {
    return this.#services.has(service);
  }

  /** True if the Service holds the front end. */
  holds(service: string, id: string): boolean {
    return this.#holder(id)?.service === service;
  }

  /** Other Services that claim the same front ends, or have an address that this one claims. */
  rivals(service: string): ReadonlySet<string> {
    const rivals = new Set<string>();
    const plan = this.#services.get(service);
    const ids = (plan?.frontEnds ?? []).map(frontEndId);
    for (const key of plan?.clusterIPs ?? []) ids.push(...this.#external.get(key));
    for (const id of ids) for (const claim of this.#claims.get(id) ?? []) rivals.add(claim.service);
    rivals.delete(service);
    return rivals;
  }

  *frontEnds(): Generator<readonly [id: string, frontEnd: FrontEnd]> {
    for (const id of this.#claims.keys()) {
      const holder = this.#holder(id);
      if (holder !== undefined) yield [id, this.#planned(holder)];
    }
  }

  get clusterIPs(): ReadonlySet<ByteString> {
    return this.#clusterIPs.keys;
  }

  get hairpinEndpoints(): ReadonlySet<ByteString> {
    return this.#hairpinEndpoints.keys;
  }

  /** Returns the changes since the last call. */
  takeChanged(): ChangedKeys {
    const frontEnds = this.#changedFrontEnds;
    this.#changedFrontEnds = new Set();
    return {
      frontEnds,
      clusterIPs: this.#clusterIPs.takeChanged(),
      hairpinEndpoints: this.#hairpinEndpoints.takeChanged(),
    };
  }

  #planned({ frontEnd }: Claim): FrontEnd {
    const { affinitySeconds } = frontEnd;
    if (!this.#roundsTimeouts || affinitySeconds === roundedTimeout(affinitySeconds)) return frontEnd;
    return { ...frontEnd, affinitySeconds: roundedTimeout(affinitySeconds) };
  }

  /** Begins or ends rounding: the front ends whose timeouts are no steps change. */
  #roundTimeouts(rounds: boolean): void {
    this.#roundsTimeouts = rounds;
    for (const [id, claims] of this.#claims) {
      const isChanged = claims.some(({ frontEnd: { affinitySeconds: exact } }) => exact !== roundedTimeout(exact));
      if (isChanged) this.#changedFrontEnds.add(id);
    }
  }

  #holder(id: string): Claim | undefined {
    const claims = this.#claims.get(id);
    const [first] = claims ?? [];
    return first === undefined || this.#mayHold(first) ? first : claims?.find((claim) => this.#mayHold(claim));
  }

  #mayHold({ external }: Claim): boolean {
    return external === undefined || !this.#owners.has(external);
  }

  #lostFrontEnd({ frontEnd, service, external }: Claim, holder: Claim | undefined): LostFrontEnd {
    const [owner = ""] = this.#owners.get(external ?? "");
    return { frontEnd, service, holder: holder?.service ?? owner };
  }

  #release(service: string, plan: ServicePlan): void {
    for (const frontEnd of plan.frontEnds) {
      const id = frontEndId(frontEnd);
      this.#timeouts.remove(frontEnd.affinitySeconds);
      const left = (this.#claims.get(id) ?? []).filter((claim) => claim.service !== service);
      if (left.length === 0) this.#claims.delete(id);
      else this.#claims.set(id, left);
      if (left.length < 2) this.#contested.delete(id);
      if (plan.external.has(id) && !left.some(({ external }) => external !== undefined)) {
        this.#external.remove(addressOf(frontEnd), id);
        this.#updateOverlap(addressOf(frontEnd));
      }
      this.#changedFrontEnds.add(id);
    }
    for (const key of plan.clusterIPs) {
      this.#clusterIPs.remove(key);
      this.#owners.remove(key, service);
      this.#ownershipChanged(key);
    }
    for (const key of plan.hairpinEndpoints) this.#hairpinEndpoints.remove(key);
    this.#refused.delete(service);
  }

  #claim(service: string, plan: ServicePlan): void {
    this.#services.set(service, plan);
    for (const frontEnd of plan.frontEnds) {
      const id = frontEndId(frontEnd);
      this.#timeouts.add(frontEnd.affinitySeconds);
      const external = plan.external.has(id) ? addressOf(frontEnd) : undefined;
      const claim = { service, createdAt: plan.createdAt, frontEnd, external };
      const others = this.#claims.get(id);
      this.#claims.set(id, others === undefined ? [claim] : [...others, claim].sort(byRight));
      if (others !== undefined) this.#contested.add(id);
      if (external !== undefined) {
        this.#external.add(external, id);
        this.#updateOverlap(external);
      }
      this.#changedFrontEnds.add(id);
    }
    for (const key of plan.clusterIPs) {
      this.#clusterIPs.add(key);
      this.#owners.add(key, service);
      this.#ownershipChanged(key);
    }
    for (const key of plan.hairpinEndpoints) this.#hairpinEndpoints.add(key);
    if (plan.refused.length > 0) this.#refused.add(service);
  }

  /** A cluster IP was added or removed: the front ends that other Services claim at this address may get another holder. */
  #ownershipChanged(clusterIP: ByteString): void {
    this.#updateOverlap(clusterIP);
    for (const id of this.#external.get(clusterIP)) this.#changedFrontEnds.add(id);
  }

  #updateOverlap(address: ByteString): void {
    if (this.#external.has(address) && this.#owners.has(address)) this.#overlaps.add(address);
    else this.#overlaps.delete(address);
  }
}

/** Address of a front end that is not a NodePort. */
function addressOf({ key }: FrontEnd): ByteString {
  return key.slice(0, -PORT_KEY_BYTES);
}

/** Cluster IPs first, then by age, then by name. */
function byRight(a: Claim, b: Claim): number {
  if ((a.external === undefined) !== (b.external === undefined)) return a.external === undefined ? -1 : 1;
  return a.createdAt - b.createdAt || (a.service < b.service ? -1 : a.service > b.service ? 1 : 0);
}

/** Counts how often each key is requested. A key is there while its count is above 0. */
class ReferenceCounts {
  /** Counts of keys that are requested more than once: few. */
  readonly #counts = new Map<ByteString, number>();
  readonly keys = new Set<ByteString>();
  #changed = new Set<ByteString>();

  add(key: ByteString): void {
    this.#changed.add(key);
    if (this.keys.has(key)) this.#counts.set(key, (this.#counts.get(key) ?? 1) + 1);
    else this.keys.add(key);
  }

  remove(key: ByteString): void {
    this.#changed.add(key);
    const left = (this.#counts.get(key) ?? 1) - 1;
    if (left > 1) this.#counts.set(key, left);
    else this.#counts.delete(key);
    if (left === 0) this.keys.delete(key);
  }

  takeChanged(): ReadonlySet<ByteString> {
    const changed = this.#changed;
    this.#changed = new Set();
    return changed;
  }
}
