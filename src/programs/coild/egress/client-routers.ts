import { setImmediate } from "node:timers/promises";
import { Dirty } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError, isAbortError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { IpAddress, IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import {
  afterAnswer,
  afterTime,
  type ClientRouter,
  chooseRouter,
  decodeProbe,
  type EgressRef,
  encodeProbe,
  type Gateway,
  newProbeState,
  newProbeToken,
  type ProbeState,
  probePort,
  type RouterVerdict,
  type TunnelDriver,
  verdictOf,
  wrapProbe,
} from "#features/egress";
import type { ConntrackPort } from "#kernel/conntrack";
import type { ClientPlace } from "./client-places.ts";
import type { OnDatagram, ProbeSocket } from "./probe-socket.ts";

const FAMILIES: readonly IpFamily[] = [4, 6];
const UDP = 17;
/** Routers that this node probes, each once for each of its Egresses. Further ones are not judged. */
const MAX_PAIRS = 1000;
/** Clients of one Egress that send its probes, in turn: the namespace of one may be broken. */
const PROBING_CLIENTS = 3;
/** Health names at most this many dead routers. */
const MAX_NAMED = 5;
/** The longest wait while nothing is due, milliseconds. */
const IDLE_MS = 60_000;
/** A socket that has failed is opened again after this time, milliseconds. */
const REOPEN_MS = 60_000;
/** After a verdict the clients get this time to follow before the flows to the dead router are deleted, milliseconds. */
const FOLLOW_MS = 500;

/** What a pod uses of its Egresses. */
export interface RouterUse {
  readonly place: ClientPlace;
  readonly driver: TunnelDriver;
  /** With the addresses of the Services. */
  readonly gateways: readonly Pick<Gateway, "egress" | "address">[];
}

/** A pod that sends to the own address of a router. */
export interface Redirect {
  readonly uid: string;
  /** The Egress, as `namespace/name`. */
  readonly egress: string;
  readonly router: Pick<ClientRouter["metadata"], "name" | "namespace" | "uid">;
}

interface Client extends RouterUse {
  readonly uid: string;
  /** By Egress, as `namespace/name`: the addresses of its Service. */
  readonly services: ReadonlyMap<string, readonly IpAddress[]>;
}

/** A router of an Egress that clients of this node use. */
interface Pair {
  readonly egress: EgressRef;
  readonly key: string;
  readonly router: ClientRouter;
  readonly token: string;
  state: ProbeState;
  /** The number of probes so far: whose turn it is. */
  turn: number;
}

const keyOf = ({ namespace, name }: EgressRef): string => `${namespace}/${name}`;
const pairKey = (egress: string, uid: string): string => `${egress} ${uid}`;

/**
 * Which router serves each client (docs/spec/pod-network.md#7.8). Probes the routers in use from the namespaces of their clients, and while one of an Egress is dead gives
 * the clients of this Egress another one. Holds an entry for each client of the node, for at most 1000 routers, and a socket for at most three clients of an Egress and each
 * family.
 */
export class ClientRouters {
  readonly #parts: ConstructorParameters<typeof ClientRouters>[0];
  readonly #port: number;
  /** By UID. */
  readonly #clients = new Map<string, Client>();
  /** By Egress, as `namespace/name`, then by UID, in the order of their coming. */
  readonly #users = new Map<string, Map<string, Client>>();
  readonly #pairs = new Map<string, Pair>();
  /** By the token of their probes. */
  readonly #byToken = new Map<string, Pair>();
  /** By UID and family. */
  readonly #sockets = new Map<string, ProbeSocket>();
  /** When sockets that have failed are opened again, by UID and family. */
  readonly #reopenAt = new Map<string, number>();
  /** Egresses with a router that was dead and went: its clients stay where they are. */
  readonly #settled = new Set<string>();
  /** By UID and Egress: the router that has the client's flows. */
  readonly #current = new Map<string, string>();
  readonly #redirects = new Map<string, Redirect>();
  readonly #dirty: Dirty;
  /** Egresses whose flows must be compared, and when. */
  readonly #flowsAt = new Map<string, number>();
  #isComparing = true;
  #isFull = false;

  constructor(
    parts: {
      /** The routers of an Egress. */
      readonly routersOf: (egress: string) => readonly ClientRouter[];
      /** Throws an `ExpectedError` if the client cannot send. */
      readonly openSocket: (place: ClientPlace, address: IpAddress, onDatagram: OnDatagram) => ProbeSocket;
      /** The connection tracking of the node. */
      readonly openConntrack: () => ConntrackPort;
      /** The clients of this Egress must be compared. */
      readonly onChange: (egress: string) => void;
      /** Degraded while a router in use is dead. */
      readonly health: HealthPart;
      readonly log: Logger;
      readonly clock: Clock;
    },
    { port }: { readonly port: number },
  ) {
    this.#parts = parts;
    this.#port = port;
    this.#dirty = new Dirty(parts.clock);
  }

  /** Takes what a pod uses now; without gateways it is forgotten. */
  use(uid: string, use: RouterUse): void {
    const before = this.#clients.get(uid);
    const services = new Map<string, IpAddress[]>();
    for (const { egress, address } of use.gateways) {
      const key = keyOf(egress);
      services.set(key, [...(services.get(key) ?? []), address]);
    }
    if (before !== undefined && (services.size === 0 || before.place.inode !== use.place.inode)) this.forget(uid);
    if (services.size === 0) return;
    const client = { uid, ...use, services };
    this.#clients.set(uid, client);
    for (const key of before?.services.keys() ?? []) if (!services.has(key)) this.#leave(uid, key);
    for (const key of services.keys()) {
      const users = this.#users.get(key) ?? new Map<string, Client>();
      if (users.size < PROBING_CLIENTS) this.routersChanged();
      this.#users.set(key, users.set(uid, client));
    }
  }

  /** A pod that is gone, or has no client any more. */
  forget(uid: string): void {
    const client = this.#clients.get(uid);
    if (client === undefined) return;
    this.#clients.delete(uid);
    for (const key of client.services.keys()) this.#leave(uid, key);
    for (const family of FAMILIES) {
      this.#close(`${uid} ${family}`);
      this.#reopenAt.delete(`${uid} ${family}`);
    }
  }

  #leave(uid: string, key: string): void {
    const users = this.#users.get(key);
    users?.delete(uid);
    if (users?.size === 0) {
      this.#users.delete(key);
      this.#settled.delete(key);
    }
    this.#current.delete(`${uid} ${key}`);
    this.#redirects.delete(`${uid} ${key}`);
    this.routersChanged();
  }

  #close(socket: string): void {
    this.#sockets.get(socket)?.[Symbol.dispose]();
    this.#sockets.delete(socket);
  }

  /** The list of routers, or their readiness, may have changed. */
  routersChanged(): void {
    this.#isComparing = true;
    this.#dirty.mark();
  }

  /**
   * The gateways of a client, with the address of the router that serves it where that is not for the Service to choose. Remembers the choice of a client that
   * is in use.
   */
  redirect<T extends Gateway>(uid: string, gateways: readonly T[]): T[] {
    return gateways.map((gateway) => {
      const key = keyOf(gateway.egress);
      const of = `${uid} ${key}`;
      const serving = this.#serving(key);
      const stays = this.#redirects.has(of) && this.#settled.has(key);
      const router = chooseRouter(serving, { client: uid, current: this.#current.get(of), stays });
      const address = router?.router.addresses.find(({ family }) => family === gateway.address.family);
      if (router === undefined || address === undefined) {
        this.#redirects.delete(of);
        return gateway;
      }
      // What is not in use is not forgotten either.
      if (this.#clients.get(uid)?.services.has(key) !== true) return { ...gateway, address };
      this.#current.set(of, router.id);
      this.#redirects.set(of, { uid, egress: key, router: router.router.metadata });
      return { ...gateway, address };
    });
  }

  /** The pods that send to the own address of a router. */
  get redirects(): readonly Redirect[] {
    return [...this.#redirects.values()];
  }

  /** The routers that this node probes. */
  get verdicts(): readonly { readonly egress: EgressRef; readonly router: string; readonly verdict: RouterVerdict }[] {
    return [...this.#pairs.values()].map(({ egress, router, state }) => ({
      egress,
      router: router.metadata.name,
      verdict: verdictOf(state),
    }));
  }

  #serving(egress: string) {
    return this.#parts.routersOf(egress).map((router) => {
      const { uid } = router.metadata;
      const pair = this.#pairs.get(pairKey(egress, uid));
      const verdict: RouterVerdict = pair === undefined ? "unproven" : verdictOf(pair.state);
      return { id: uid, isReady: router.isReady, verdict, router };
    });
  }

  /** Probes until the signal aborts, and closes the sockets. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { clock } = this.#parts;
    try {
      while (!signal.aborted) {
        // Answers that wait in the sockets are read first: what is late here is not the router's fault.
        await setImmediate();
        const now = clock.monotonic();
        if (this.#isComparing) this.#compare(now);
        for (const pair of this.#pairs.values()) await this.#step(pair, now, { signal });
        await this.#endFlows(now, { signal });
        const times = [...[...this.#pairs.values()].map(({ state }) => state.at), ...this.#flowsAt.values()];
        const atMostMs = Math.max(1, Math.min(IDLE_MS, ...times.map((at) => at - clock.monotonic())));
        await this.#dirty.wait({ atMostMs, signal });
      }
    } catch (error) {
      // The reading of connection tracking ends with the signal.
      if (!signal.aborted || !isAbortError(error)) throw error;
    } finally {
      for (const socket of [...this.#sockets.keys()]) this.#close(socket);
    }
  }

  /** Brings the pairs to the routers in use; of a pair that stays the state stays. */
  #compare(now: number): void {
    this.#isComparing = false;
    const wanted = new Set<string>();
    let left = 0;
    for (const [key, users] of this.#users) {
      const [client] = users.values();
      const egress = client?.gateways.find((one) => keyOf(one.egress) === key)?.egress;
      if (egress === undefined) continue;
      for (const router of this.#parts.routersOf(key)) {
        if (!router.isReady) continue;
        const at = pairKey(key, router.metadata.uid);
        if (wanted.size >= MAX_PAIRS) left += 1;
        else wanted.add(at);
        if (!wanted.has(at)) continue;
        const before = this.#pairs.get(at);
        if (before !== undefined && String(before.router.addresses) === String(router.addresses)) continue;
        if (before !== undefined) this.#byToken.delete(before.token);
        const pair = { egress, key, router, token: newProbeToken(), state: newProbeState(now), turn: 0 };
        this.#pairs.set(at, pair);
        this.#byToken.set(pair.token, pair);
      }
    }
    for (const [at, pair] of this.#pairs) {
      if (wanted.has(at)) continue;
      this.#pairs.delete(at);
      this.#byToken.delete(pair.token);
      if (verdictOf(pair.state) !== "dead") continue;
      // Its clients have connections by the routers to which they moved: the Service may send them elsewhere.
      this.#settled.add(pair.key);
      this.#changed(pair.key, now);
    }
    if (left > 0 && !this.#isFull)
      this.#parts.log.warn("this node uses more routers than it probes; the others are not judged", {
        probed: MAX_PAIRS,
        others: left,
      });
    this.#isFull = left > 0;
  }

  async #step(pair: Pair, now: number, options: { readonly signal: AbortSignal }): Promise<void> {
    const { state, probe } = afterTime(pair.state, now);
    const before = verdictOf(pair.state);
    pair.state = state;
    if (probe && !this.#probe(pair)) pair.state = newProbeState(state.at);
    const verdict = verdictOf(pair.state);
    if (verdict === before) return;
    const { namespace, name } = pair.egress;
    if (verdict === "dead") {
      await this.#learnCurrent(pair.key, options);
      this.#parts.log.warn("a router of an Egress answers no probes: its clients on this node use the other routers", {
        ...{ namespace, egress: name, router: pair.router.metadata.name },
      });
    }
    this.#changed(pair.key, now);
  }

  #changed(egress: string, now: number): void {
    this.#flowsAt.set(egress, now + FOLLOW_MS);
    this.#parts.onChange(egress);
    const dead = [...this.#pairs.values()].filter(({ state }) => verdictOf(state) === "dead");
    if (dead.length === 0) {
      this.#parts.health.ok();
      return;
    }
    const names = dead.slice(0, MAX_NAMED).map(({ key, router }) => `${router.metadata.name} of Egress ${key}`);
    const more = dead.length > MAX_NAMED ? [`${dead.length - MAX_NAMED} more`] : [];
    this.#parts.health.degraded(
      new Error(
        `routers that answer no probes: ${[...names, ...more].join(", ")}; pods of this node use other routers of the Egress, if any lives`,
      ),
    );
  }

  /** Returns false if no client of this node can send. */
  #probe(pair: Pair): boolean {
    const { egress, key, router, token } = pair;
    const clients = [...(this.#users.get(key)?.values() ?? [])].slice(0, PROBING_CLIENTS);
    for (let tries = 0; tries < clients.length; tries += 1) {
      const client = clients[pair.turn % clients.length];
      pair.turn += 1;
      const to = client?.services
        .get(key)
        ?.map(({ family }) => router.addresses.find((one) => one.family === family))
        .find((address) => address !== undefined);
      const own = to === undefined ? undefined : client?.place.addresses[to.family];
      if (client === undefined || to === undefined || own === undefined) continue;
      const socket = this.#socketOf(client, own);
      if (socket === undefined) continue;
      const ends = { client: own, router: to, clientPort: socket.port, routerPort: probePort(this.#port) };
      const bytes = wrapProbe(client.driver, egress, ends, encodeProbe({ kind: "question", token }));
      socket.send(bytes, { address: to, port: this.#port });
      return true;
    }
    return false;
  }

  #socketOf({ uid, place }: Client, address: IpAddress): ProbeSocket | undefined {
    const key = `${uid} ${address.family}`;
    const open = this.#sockets.get(key);
    if (open?.isOpen === true) return open;
    const now = this.#parts.clock.monotonic();
    if (open !== undefined) {
      this.#close(key);
      this.#reopenAt.set(key, now + REOPEN_MS);
    }
    if (now < (this.#reopenAt.get(key) ?? 0)) return undefined;
    this.#reopenAt.delete(key);
    try {
      const socket = this.#parts.openSocket(place, address, (bytes, from) => this.#answered(bytes, from));
      this.#sockets.set(key, socket);
      return socket;
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      this.#parts.log.debug("a client cannot send probes", { uid, error: error.message });
      return undefined;
    }
  }

  #answered(bytes: Buffer, { address, port }: Parameters<OnDatagram>[1]): void {
    const message = decodeProbe(bytes);
    if (message?.kind !== "answer" || port !== probePort(this.#port)) return;
    const pair = this.#byToken.get(message.token);
    if (pair === undefined || !pair.router.addresses.some((one) => String(one) === address)) return;
    const before = verdictOf(pair.state);
    const now = this.#parts.clock.monotonic();
    pair.state = afterAnswer(pair.state, now);
    if (before !== "dead" || verdictOf(pair.state) === "dead") return;
    this.#settled.delete(pair.key);
    const { namespace, name } = pair.egress;
    this.#parts.log.info("a router of an Egress answers again", {
      namespace,
      egress: name,
      router: pair.router.metadata.name,
    });
    this.#changed(pair.key, now);
    this.#dirty.mark();
  }

  /** Reads which router has the flows of each client, if connection tracking tells it. */
  async #learnCurrent(egress: string, options: { readonly signal: AbortSignal }): Promise<void> {
    const users = this.#users.get(egress);
    if (users === undefined) return;
    const routers = new Map(
      this.#parts
        .routersOf(egress)
        .flatMap(({ metadata, addresses }) => addresses.map((one) => [String(one), metadata.uid] as const)),
    );
    const flows = new Map<string, string>();
    await this.#withConntrack(async (conntrack) => {
      for (const family of this.#familiesOf(egress)) {
        const found = await conntrack.listInSlices(
          { family, protocol: UDP, original: { dstPort: this.#port } },
          options,
        );
        for (const { original, reply } of found) {
          const router = routers.get(String(reply.src));
          if (router !== undefined) flows.set(`${original.src} ${original.dst}`, router);
        }
      }
    });
    for (const { uid, place, services } of users.values()) {
      if (this.#redirects.has(`${uid} ${egress}`)) continue;
      const found = (services.get(egress) ?? []).flatMap(
        (service) => flows.get(`${place.addresses[service.family]} ${service}`) ?? [],
      );
      const [router] = found;
      if (router === undefined) this.#current.delete(`${uid} ${egress}`);
      else this.#current.set(`${uid} ${egress}`, router);
    }
  }

  #familiesOf(egress: string): IpFamily[] {
    const services = [...(this.#users.get(egress)?.values() ?? [])].flatMap((one) => one.services.get(egress) ?? []);
    return FAMILIES.filter((family) => services.some((service) => service.family === family));
  }

  /**
   * When clients have followed a verdict: deletes their flows by the Service to dead routers, and where none is dead those to the routers' own addresses. Flows that
   * come later have none to be taken for.
   */
  async #endFlows(now: number, options: { readonly signal: AbortSignal }): Promise<void> {
    for (const [egress, at] of this.#flowsAt) {
      if (at > now) continue;
      this.#flowsAt.delete(egress);
      const serving = this.#serving(egress);
      const dead = serving.filter(({ verdict }) => verdict === "dead");
      const staying = new Set(
        [...this.#redirects.values()].flatMap((one) => (one.egress === egress ? one.router.uid : [])),
      );
      const left = dead.length > 0 ? dead : serving.filter(({ id }) => !staying.has(id));
      const ends = new Set(left.flatMap(({ router }) => router.addresses.map(String)));
      await this.#withConntrack(async (conntrack) => {
        for (const family of this.#familiesOf(egress)) {
          const filter = { family, protocol: UDP, original: { dstPort: this.#port } };
          const isFormer = ({ original, reply }: Parameters<NonNullable<Parameters<ConntrackPort["delete"]>[1]>>[0]) =>
            dead.length > 0 ? ends.has(String(reply.src)) : ends.has(String(original.dst));
          const ended = await conntrack.delete(filter, isFormer, options);
          if (ended > 0) this.#parts.log.debug("flows to routers were deleted", { egress, flows: ended });
        }
      });
    }
  }

  async #withConntrack(work: (conntrack: ConntrackPort) => Promise<void>): Promise<void> {
    try {
      using conntrack = this.#parts.openConntrack();
      await work(conntrack);
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      // The tunnels have other addresses all the same.
      this.#parts.log.warn(
        "flows to a router cannot be read or deleted in connection tracking; they end by themselves",
        {
          error: describeError(error),
        },
      );
    }
  }
}
