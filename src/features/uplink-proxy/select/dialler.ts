import { LinkedSet } from "#base/collections";
import { Cidr, type IpAddress, type IpFamily } from "#base/ip";
import { hasError, type Snapshot, type UplinkAddress } from "#base/uplink-model";
import { type DnsAnswer, DnsError, type DnsUplink } from "../dns/index.ts";
import { DialRace } from "./dial-race.ts";
import type { DiallerDeps, DialRequest, DialResult } from "./dial-request.ts";
import { SelectError } from "./errors.ts";
import type { Closable } from "./happy-eyeballs.ts";
import { dnsUplink, EligibleCandidates, noCandidates, orderCandidates, type Tier } from "./order.ts";
import { Patience } from "./patience.ts";

const BOTH: readonly IpFamily[] = [6, 4];

/** Finds a connection to a destination over the cheapest uplink over which it can be reached (docs/spec/uplink-proxy.md#6). */
export class Dialler<C extends Closable> {
  readonly #deps: DiallerDeps<C>;
  /** The races of the waiting requests, one for each, and those with trials that go on without their request. */
  readonly #races = new LinkedSet<DialRace<C>>();
  readonly #eligible = new EligibleCandidates();
  readonly #patience: Patience;

  constructor(deps: DiallerDeps<C>) {
    this.#deps = deps;
    this.#patience = new Patience(deps.settings);
  }

  /** Dials. Rejects with {@link SelectError}, or with the signal's reason. Leaves only the returned connection open. */
  async dial(request: DialRequest): Promise<DialResult<C>> {
    const { destination, snapshot } = request;
    if (!snapshot.ready) throw new SelectError("not-ready", `the uplinks are not known yet for ${destination.text}`);
    const { address } = destination;
    const known = address === undefined ? await this.#deps.dns.hosts(destination.host) : [address];
    request.signal.throwIfAborted();
    const judgement = known.length === 0 ? "uplink" : request.judge(known);
    if (judgement === "denied") throw new SelectError("denied", `${destination.text} is not an allowed destination`);
    if (judgement === "direct") return await this.#race(request, [], known).direct(known);
    const families = known.length === 0 ? BOTH : known.map(({ family }) => family);
    const tiers = this.#order(request, families);
    if (tiers.length === 0) {
      const near = known.length === 0 && request.except === undefined ? await this.#nearAddresses(request) : undefined;
      if (near === undefined) throw noCandidates(snapshot, destination.text, [...new Set(families)]);
      return await this.#race(request, [], near).direct(near, "system");
    }
    const { rotation } = this.#deps;
    const uplinks = (tiers[0]?.candidates ?? []).map(({ uplink }) => uplink);
    const expected = uplinks[0]?.name ?? "";
    // Counted before the dial succeeds, so that simultaneous requests are distributed as well.
    rotation.take(destination.text, uplinks, expected);
    const race = this.#race(request, tiers, known);
    const entry = this.#races.add(race);
    try {
      const won = await race.run();
      const winner = won.uplink?.name ?? "";
      const isOfTier = uplinks.some(({ name }) => name === winner);
      if (!isOfTier) rotation.giveBack(destination.text, uplinks, expected);
      else if (winner !== expected) rotation.move(destination.text, uplinks, expected, winner);
      return won;
    } catch (error) {
      rotation.giveBack(destination.text, uplinks, expected);
      throw error;
    } finally {
      race.whenIdle(() => entry.remove());
    }
  }

  /** The addresses of a name that leads into the bypass set. `undefined`: it leads elsewhere, or no near server has it. */
  async #nearAddresses({
    destination,
    snapshot,
    judge,
    signal,
  }: DialRequest): Promise<readonly IpAddress[] | undefined> {
    const tooDear = addressesAbove(snapshot);
    const isNear = (server: IpAddress): boolean =>
      // One on loopback asks others, by whichever uplink is there.
      server.isLoopback ? tooDear.length === 0 : judge([server]) === "direct" && !tooDear.some(leadsTo(server));
    let answer: DnsAnswer;
    try {
      answer = await this.#deps.dns.resolveNear(destination.host, { isNear, signal });
    } catch (error) {
      // The lack of an uplink is the cause that is told.
      if (error instanceof DnsError) return undefined;
      throw error;
    }
    const judgement = judge(answer.addresses);
    if (judgement === "denied") throw new SelectError("denied", `${destination.text} resolves to a denied address`);
    return judgement === "direct" ? answer.addresses : undefined;
  }

  /** Returns true if an uplink that is not in `except` may carry the request, and is neither down nor failed. */
  hasAlternative(request: Pick<DialRequest, "destination" | "snapshot" | "except">): boolean {
    const { address } = request.destination;
    const candidates = this.#eligible.of(request.snapshot, address === undefined ? BOTH : [address.family]);
    return candidates.some(
      ({ uplink }) => uplink.isUp && !hasError(uplink.status) && request.except?.has(uplink.name) !== true,
    );
  }

  /** Call this when the state of the uplinks has changed; it also informs waiting requests and running trials. */
  snapshotChanged(snapshot: Snapshot): void {
    const names = new Set(snapshot.uplinks.map(({ name }) => name));
    this.#patience.keep(names);
    this.#deps.segments.keep(names);
    for (const race of this.#races) race.snapshotChanged(snapshot);
  }

  #order({ destination, snapshot, except }: DialRequest, families: readonly IpFamily[]): Tier[] {
    const { penalties, rotation } = this.#deps;
    return orderCandidates(this.#eligible.of(snapshot, families), {
      penaltyState: (uplink) => penalties.stateOf(destination.text, uplink),
      rotate: (candidates) => {
        const byName = new Map(candidates.map((candidate) => [candidate.uplink.name, candidate]));
        const names = rotation.order(
          destination.text,
          candidates.map(({ uplink }) => uplink),
        );
        return names.map(({ name }) => byName.get(name)).filter((candidate) => candidate !== undefined);
      },
      except,
    });
  }

  #race(request: DialRequest, tiers: readonly Tier[], known: readonly IpAddress[]): DialRace<C> {
    const others = (): DnsUplink[] => {
      const all = this.#eligible.of(request.snapshot, BOTH).toSorted((a, b) => a.uplink.cost - b.uplink.cost);
      return all.map(dnsUplink);
    };
    return new DialRace({ ...this.#deps, patience: this.#patience }, request, { tiers, known, others });
  }
}

/** The addresses in use of uplinks that cost more than is allowed: they carry no query either. */
function addressesAbove({ uplinks, maxCost }: Snapshot): readonly UplinkAddress[] {
  const above = uplinks.filter(({ cost, isUp }) => cost > maxCost && isUp);
  return above.flatMap(({ addresses }) => addresses.filter(({ isUsable }) => isUsable));
}

const leadsTo =
  (server: IpAddress) =>
  ({ address, prefixLength }: UplinkAddress): boolean =>
    address.family === server.family && Cidr.of(address, prefixLength).contains(server);
