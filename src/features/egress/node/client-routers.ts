import { setImmediate } from "node:timers/promises";
import { TaskGroup } from "#base/async";
import type { Clock } from "#base/clock";
import type { HealthPart } from "#base/health";
import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { Loop, type PassResult } from "#base/reconcile";
import type { ConntrackPort } from "#kernel/conntrack";
import type { EgressRef } from "../access/index.ts";
import type { ClientRouter, Gateway } from "../client/index.ts";
import {
  afterAnswer,
  afterRefusal,
  afterTime,
  afterUnsent,
  decodeProbe,
  dueAt,
  encodeProbe,
  newProbeState,
  newProbeToken,
  type ProbeState,
  probePort,
  type RouterVerdict,
  verdictFor,
  withNamespaces,
  wrapProbe,
} from "../probe/index.ts";
import type { ClientPlace } from "./client-places.ts";
import type { OnDatagram, ProbeSocket } from "./probe-socket.ts";
import { ProbeSockets } from "./probe-sockets.ts";
import { type Redirect, RouterChoices } from "./router-choices.ts";
import { RouterFlows } from "./router-flows.ts";
import { deadText, isKept, isProcessAway, leavers, type Pair, pairKey, returns, someOf } from "./router-pair.ts";
import { keyOf, type RouterUse, type RouterUser, RouterUsers } from "./router-users.ts";

/** Routers that this node probes, each once for each of its Egresses. Further ones are not judged. */
const MAX_PAIRS = 1000;
/** Clients of a namespace of which one must be able to send the probe that is due, or nobody of the namespace sends it. */
const TRIES = 3;
/** The longest wait while nothing is due, milliseconds. */
const IDLE_MS = 60_000;

/**
 * Which router serves each client (docs/spec/pod-network.md#7.8). Probes the routers in use from the namespaces of their clients, and while one of an Egress is dead gives
 * the clients of this Egress another one. Holds an entry for each client of the node, and for at most 1000 routers.
 */
export class ClientRouters {
  readonly #parts: ConstructorParameters<typeof ClientRouters>[0];
  readonly #options: ConstructorParameters<typeof ClientRouters>[1];
  readonly #users = new RouterUsers();
  readonly #sockets: ProbeSockets;
  readonly #flows: RouterFlows;
  readonly #pairs = new Map<string, Pair>();
  /** The router and namespace of each token of probes. */
  readonly #byToken = new Map<string, { readonly pair: Pair; readonly namespace: string }>();
  readonly #choices: RouterChoices;
  readonly #loop: Loop;
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
    options: {
      /** UDP port of the tunnels. */
      readonly port: number;
      /** For how long a router must answer after its first death, milliseconds. Default 10,000. */
      readonly holdMs?: number | undefined;
    },
  ) {
    const { clock, log, openSocket, openConntrack } = parts;
    this.#parts = parts;
    this.#options = options;
    this.#loop = new Loop({ everyMs: IDLE_MS, clock });
    this.#choices = new RouterChoices({
      users: this.#users,
      routersOf: parts.routersOf,
      verdictOf: (egress, router, namespace) => this.#verdict(egress, router, namespace),
    });
    const onDatagram: OnDatagram = (bytes, from) => this.#answered(bytes, from);
    this.#sockets = new ProbeSockets({ openSocket, onDatagram, log, clock });
    this.#flows = new RouterFlows(
      {
        openConntrack,
        servicesOf: (egress) => [...this.#users.of(egress)].flatMap(({ services }) => services.get(egress) ?? []),
        onFlows: (egresses, flows) => {
          this.#choices.learn(egresses, flows);
          // The clients follow.
          for (const egress of egresses) this.#changed(egress);
        },
        formerOf: (egresses) => this.#choices.formerOf(egresses),
        log,
        clock,
      },
      options,
    );
  }

  /** Takes what a pod uses now; without gateways it is forgotten. */
  use(uid: string, use: RouterUse): void {
    const before = this.#users.get(uid);
    if (before !== undefined && (use.gateways.length === 0 || before.place.inode !== use.place.inode)) this.forget(uid);
    this.#set(uid, use);
  }

  /** A pod that is gone, or has no client any more. */
  forget(uid: string): void {
    if (this.#users.get(uid) === undefined) return;
    this.#set(uid, undefined);
    this.#sockets.forget(uid);
  }

  #set(uid: string, use: RouterUse | undefined): void {
    const { left, changed } = this.#users.set(uid, use);
    for (const key of left) this.#choices.left(key, uid);
    if (changed) this.routersChanged();
  }

  /** The list of routers, or their readiness, may have changed. */
  routersChanged(): void {
    this.#isComparing = true;
    this.#loop.wake("routers or users");
  }

  /** See {@link RouterChoices.redirect}. */
  redirect<T extends Gateway>(uid: string, gateways: readonly T[]): T[] {
    return this.#choices.redirect(uid, gateways);
  }

  /** The pods that send to the own address of a router. */
  get redirects(): readonly Redirect[] {
    return this.#choices.redirects;
  }

  /** The routers that this node probes, as most of its clients find them. */
  get verdicts(): readonly { readonly egress: EgressRef; readonly router: string; readonly verdict: RouterVerdict }[] {
    return [...this.#pairs.values()].map(({ egress, router, state }) => ({
      egress,
      router: router.metadata.name,
      verdict: verdictFor(state.witnesses),
    }));
  }

  #verdict(egress: string, router: string, namespace: string | undefined): RouterVerdict {
    const pair = this.#pairs.get(pairKey(egress, router));
    return pair === undefined ? "unproven" : verdictFor(pair.state.witnesses, namespace);
  }

  /** Probes until the signal aborts, and closes the sockets. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const group = new TaskGroup(signal);
    group.spawn((at) => this.#flows.run({ signal: at }));
    group.spawn((at) => this.#probeAll({ signal: at }));
    try {
      await group.wait();
    } finally {
      this.#sockets.close();
    }
  }

  async #probeAll({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { clock } = this.#parts;
    const probe = async (): Promise<PassResult> => {
      // Answers that wait in the sockets are read first: what is late here is not the router's fault.
      await setImmediate();
      const now = clock.monotonic();
      if (this.#isComparing || this.#someIsOver(now)) this.#compare(now);
      for (const pair of this.#pairs.values()) this.#step(pair, now);
      const times = [...this.#pairs.values()].map(({ state }) => dueAt(state));
      return { againMs: Math.max(1, Math.min(IDLE_MS, ...times.map((at) => at - clock.monotonic()))) };
    };
    await this.#loop.run(probe, { signal });
  }

  /** Returns true if a router was not ready for so long that its flows are not checked any more. */
  #someIsOver(now: number): boolean {
    return [...this.#pairs.values()].some((pair) => !isKept(pair, now));
  }

  /**
   * Brings the pairs to the routers in use; of a pair that stays the state stays. One whose pod is not ready any more, as while its container starts again, stays for a while if it lives: its
   * flows do, unless it dies now.
   */
  #compare(now: number): void {
    this.#isComparing = false;
    const wanted = new Set<string>();
    let left = 0;
    for (const key of this.#users.egresses) {
      const namespaces = this.#users.namespacesOf(key);
      const [user] = this.#users.of(key);
      const egress = user?.gateways.find((one) => keyOf(one.egress) === key)?.egress;
      if (egress === undefined) continue;
      for (const router of this.#parts.routersOf(key)) {
        const at = pairKey(key, router.metadata.uid);
        if (!router.isReady && !this.#stays(this.#pairs.get(at), router, now)) continue;
        if (wanted.size >= MAX_PAIRS) left += 1;
        else wanted.add(at);
        if (wanted.has(at)) this.#keep(at, { egress, key, router, namespaces }, now);
      }
    }
    for (const [at, pair] of this.#pairs) {
      if (wanted.has(at)) continue;
      this.#pairs.delete(at);
      this.#dropTokens(pair, () => false);
      if (leavers(pair.state).length === 0) continue;
      this.#choices.settle(pair.key);
      this.#changed(pair.key);
    }
    if (left > 0 && !this.#isFull)
      this.#parts.log.warn("this node uses more routers than it probes; the others are not judged", {
        probed: MAX_PAIRS,
        others: left,
      });
    this.#isFull = left > 0;
  }

  /** Returns true if a router that is not ready is still probed. */
  #stays(pair: Pair | undefined, { isEnding }: ClientRouter, now: number): boolean {
    if (pair === undefined || isEnding) return false;
    if (pair.unreadySince === undefined && leavers(pair.state).length > 0) return false;
    pair.unreadySince ??= now;
    return isKept(pair, now);
  }

  #keep(
    at: string,
    {
      namespaces,
      ...what
    }: Pick<Pair, "egress" | "key" | "router"> & {
      readonly namespaces: readonly string[];
    },
    now: number,
  ): void {
    const before = this.#pairs.get(at);
    if (before !== undefined && String(before.router.addresses) === String(what.router.addresses)) {
      if (what.router.isReady) before.unreadySince = undefined;
      this.#become(before, withNamespaces(before.state, namespaces));
      return;
    }
    if (before !== undefined) this.#dropTokens(before, () => false);
    const state = newProbeState(now, namespaces, this.#options);
    this.#pairs.set(at, { ...what, state, unreadySince: undefined, tokens: new Map(), unanswered: new Set() });
  }

  #dropTokens({ tokens, unanswered }: Pair, isKept: (namespace: string) => boolean): void {
    for (const [namespace, token] of tokens) {
      if (isKept(namespace)) continue;
      tokens.delete(namespace);
      unanswered.delete(namespace);
      this.#byToken.delete(token);
    }
  }

  #step(pair: Pair, now: number): void {
    const { state, asks } = afterTime(pair.state, now);
    const isSent = asks === undefined || this.#probe(pair, asks);
    this.#become(pair, isSent ? state : afterUnsent(state, asks, now));
  }

  /** Takes the next state of a router, and tells what it changes for clients. */
  #become(pair: Pair, state: ProbeState): void {
    const before = pair.state;
    pair.state = state;
    if (before.witnesses === state.witnesses) return;
    const seated = new Set(state.witnesses.map(({ namespace }) => namespace));
    this.#dropTokens(pair, (namespace) => seated.has(namespace));
    const [was, is] = [leavers(before), leavers(state)].map(String);
    this.#sayAway(pair, before);
    if (was === is) {
      // Where no router lives, one that returns serves.
      if (returns(before) !== returns(state) && !this.#someLives(pair.key)) this.#parts.onChange(pair.key);
      return;
    }
    const { namespace, name } = pair.egress;
    const what = { namespace, egress: name, router: pair.router.metadata.name };
    if (is === "") {
      this.#parts.log.info("a router of an Egress answers again", what);
      this.#choices.unsettle(pair.key);
      this.#changed(pair.key);
      return;
    }
    this.#parts.log.warn("a router of an Egress answers no probes: its clients on this node use the other routers", {
      ...what,
      clientsOf: someOf(leavers(state)),
    });
    this.#reportHealth();
    // The clients follow when it is known which routers have their flows.
    this.#flows.ask(pair.key);
  }

  #sayAway({ egress: { namespace, name }, router, state }: Pair, before: ProbeState): void {
    const isAwayNow = isProcessAway(state);
    if (isProcessAway(before) === isAwayNow) return;
    const what = { namespace, egress: name, router: router.metadata.name };
    if (isAwayNow) this.#parts.log.info("the process of a router is away; its kernel forwards on", what);
    else if (leavers(state).length === 0) this.#parts.log.info("the process of a router answers again", what);
  }

  /** Returns true if all clients of an Egress have a router that lives. */
  #someLives(egress: string): boolean {
    return this.#parts.routersOf(egress).some(({ isReady, metadata }) => {
      const pair = this.#pairs.get(pairKey(egress, metadata.uid));
      return isReady && (pair === undefined || leavers(pair.state).length === 0);
    });
  }

  #changed(egress: string): void {
    this.#flows.endFormer(egress);
    this.#parts.onChange(egress);
    this.#reportHealth();
  }

  #reportHealth(): void {
    const dead = deadText(this.#pairs.values());
    if (dead === undefined) this.#parts.health.ok();
    else this.#parts.health.degraded(new Error(dead));
  }

  /** Returns false if no client of this namespace can send. */
  #probe(pair: Pair, namespace: string): boolean {
    const { egress, key, router, unanswered } = pair;
    // Another client asks where the last one got no answer: its own network namespace may be broken.
    if (unanswered.has(namespace)) this.#users.next(key, namespace);
    for (let tries = 0; tries < TRIES; tries += 1) {
      const user = this.#users.first(key, namespace);
      const ends = user === undefined ? undefined : this.#endsOf(user, key, router);
      const socket = user === undefined || ends === undefined ? undefined : this.#sockets.of(user, ends.client);
      if (user === undefined || ends === undefined || socket === undefined) {
        this.#users.next(key, namespace);
        continue;
      }
      const { port } = this.#options;
      const message = encodeProbe({ kind: "question", token: this.#tokenOf(pair, namespace) });
      const all = { ...ends, clientPort: socket.port, routerPort: probePort(port) };
      socket.send(wrapProbe(user.driver, egress, all, message), { address: ends.router, port });
      unanswered.add(namespace);
      return true;
    }
    return false;
  }

  /** The addresses of a probe: of a family in which the client uses the Egress. */
  #endsOf({ services, place }: RouterUser, key: string, { addresses }: ClientRouter) {
    for (const { family } of services.get(key) ?? []) {
      const router = addresses.find((one) => one.family === family);
      const client = place.addresses[family];
      if (router !== undefined && client !== undefined) return { client, router };
    }
    return undefined;
  }

  #tokenOf(pair: Pair, namespace: string): string {
    const known = pair.tokens.get(namespace);
    if (known !== undefined) return known;
    const token = newProbeToken();
    pair.tokens.set(namespace, token);
    this.#byToken.set(token, { pair, namespace });
    return token;
  }

  #answered(bytes: Buffer, { address, port, isRefused = false }: Parameters<OnDatagram>[1]): void {
    const message = decodeProbe(bytes);
    const kind = isRefused ? "question" : "answer";
    if (message?.kind !== kind || port !== probePort(this.#options.port)) return;
    const asked = this.#byToken.get(message.token);
    if (asked === undefined || !asked.pair.router.addresses.some((one) => String(one) === address)) return;
    const { pair, namespace } = asked;
    const due = dueAt(pair.state);
    const state = (isRefused ? afterRefusal : afterAnswer)(pair.state, namespace, this.#parts.clock.monotonic());
    if (state === pair.state) return;
    pair.unanswered.delete(namespace);
    this.#become(pair, state);
    if (dueAt(pair.state) < due) this.#loop.wake("probe due");
  }
}
