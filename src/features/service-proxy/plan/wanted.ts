import type { ByteString } from "#kernel/nft-elements";
import { type FrontEnd, frontEndId } from "./front-end.ts";

/** What one Service asks of the data plane of one family. */
export interface ServicePlan {
  readonly frontEnds: readonly FrontEnd[];
  /** Keys of `cluster-ips`. */
  readonly clusterIPs: readonly ByteString[];
  /** Keys of `hairpin`: its endpoints on this node. */
  readonly hairpins: readonly ByteString[];
  /** Milliseconds since the epoch: of two Services that claim one front end, the older one has it. */
  readonly createdAt: number;
}

interface Claim {
  readonly service: string;
  readonly createdAt: number;
  readonly frontEnd: FrontEnd;
}

/** What may have changed since it was last asked. */
export interface Dirty {
  /** See {@link frontEndId}. */
  readonly frontEnds: ReadonlySet<string>;
  readonly clusterIPs: ReadonlySet<ByteString>;
  readonly hairpins: ReadonlySet<ByteString>;
}

/**
 * All that is wanted of one family's table. Services may claim the same address and port, by external IPs above all: the older
 * Service holds it, by name where both are of an age, and the other gets it when that one goes.
 */
export class WantedTable {
  readonly #services = new Map<string, ServicePlan>();
  /** By front end, the one that holds first. */
  readonly #claims = new Map<string, Claim[]>();
  /** Front ends that several claim: few, if any. */
  readonly #contested = new Set<string>();
  readonly #clusterIPs = new Counts();
  readonly #hairpins = new Counts();
  #dirtyFrontEnds = new Set<string>();

  /** Replaces what a Service asks for; `undefined`: it is gone. */
  set(service: string, plan: ServicePlan | undefined): void {
    const before = this.#services.get(service);
    if (before !== undefined) this.#release(service, before);
    if (plan === undefined) this.#services.delete(service);
    else this.#claim(service, plan);
  }

  /** The wanted front end; `undefined`: none. */
  frontEnd(id: string): FrontEnd | undefined {
    return this.#claims.get(id)?.[0]?.frontEnd;
  }

  /** Services that claim a front end and do not have it, for `explain` and the log. */
  *losers(): Generator<{ readonly frontEnd: FrontEnd; readonly service: string; readonly holder: string }> {
    for (const id of this.#contested) {
      const [holder, ...others] = this.#claims.get(id) ?? [];
      for (const { frontEnd, service } of others) yield { frontEnd, service, holder: holder?.service ?? "" };
    }
  }

  /** Whether a Service has a front end that it claims. */
  holds(service: string, id: string): boolean {
    return this.#claims.get(id)?.[0]?.service === service;
  }

  /** Services that claim what this one claims, itself not among them. */
  rivals(service: string): ReadonlySet<string> {
    const claims = (this.#services.get(service)?.frontEnds ?? []).flatMap(
      (one) => this.#claims.get(frontEndId(one)) ?? [],
    );
    return new Set(claims.flatMap((claim) => (claim.service === service ? [] : claim.service)));
  }

  *frontEnds(): Generator<readonly [id: string, frontEnd: FrontEnd]> {
    for (const [id, [holder]] of this.#claims) if (holder !== undefined) yield [id, holder.frontEnd];
  }

  get clusterIPs(): ReadonlySet<ByteString> {
    return this.#clusterIPs.keys;
  }

  get hairpins(): ReadonlySet<ByteString> {
    return this.#hairpins.keys;
  }

  /** What changed since the last call. */
  takeDirty(): Dirty {
    const frontEnds = this.#dirtyFrontEnds;
    this.#dirtyFrontEnds = new Set();
    return { frontEnds, clusterIPs: this.#clusterIPs.takeDirty(), hairpins: this.#hairpins.takeDirty() };
  }

  #release(service: string, plan: ServicePlan): void {
    for (const frontEnd of plan.frontEnds) {
      const id = frontEndId(frontEnd);
      const left = (this.#claims.get(id) ?? []).filter((claim) => claim.service !== service);
      if (left.length === 0) this.#claims.delete(id);
      else this.#claims.set(id, left);
      if (left.length < 2) this.#contested.delete(id);
      this.#dirtyFrontEnds.add(id);
    }
    for (const key of plan.clusterIPs) this.#clusterIPs.remove(key);
    for (const key of plan.hairpins) this.#hairpins.remove(key);
  }

  #claim(service: string, plan: ServicePlan): void {
    this.#services.set(service, plan);
    for (const frontEnd of plan.frontEnds) {
      const id = frontEndId(frontEnd);
      const claims = [...(this.#claims.get(id) ?? []), { service, createdAt: plan.createdAt, frontEnd }];
      this.#claims.set(id, claims.length === 1 ? claims : claims.sort(byAge));
      if (claims.length > 1) this.#contested.add(id);
      this.#dirtyFrontEnds.add(id);
    }
    for (const key of plan.clusterIPs) this.#clusterIPs.add(key);
    for (const key of plan.hairpins) this.#hairpins.add(key);
  }
}

function byAge(a: Claim, b: Claim): number {
  return a.createdAt - b.createdAt || (a.service < b.service ? -1 : a.service > b.service ? 1 : 0);
}

/** Keys that several want; there as long as one does. */
class Counts {
  readonly #counts = new Map<ByteString, number>();
  readonly keys = new Set<ByteString>();
  #dirty = new Set<ByteString>();

  add(key: ByteString): void {
    this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1);
    this.#update(key);
  }

  remove(key: ByteString): void {
    this.#counts.set(key, (this.#counts.get(key) ?? 0) - 1);
    this.#update(key);
  }

  takeDirty(): ReadonlySet<ByteString> {
    const dirty = this.#dirty;
    this.#dirty = new Set();
    return dirty;
  }

  #update(key: ByteString): void {
    this.#dirty.add(key);
    if ((this.#counts.get(key) ?? 0) > 0) this.keys.add(key);
    else {
      this.keys.delete(key);
      this.#counts.delete(key);
    }
  }
}
