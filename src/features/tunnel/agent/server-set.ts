import { Backoff } from "#base/async";
import type { Clock } from "#base/clock";
import { assertNever, describeError } from "#base/errors";
import type { Logger } from "#base/log";
import type { Names } from "#base/names";
import { Loop, type PassResult } from "#base/reconcile";
import { type Capability, MetadataKey, sharedCapabilities } from "#wire/konnectivity";
import { LinkError, type OpenedStream } from "../link/outgoing.ts";
import type { BufferBudget } from "../mux/budget.ts";
import { AgentLink, type AgentLinkOptions } from "./agent-link.ts";
import type { AgentMetrics } from "./metrics.ts";
import { ServerCount } from "./server-count.ts";

/** Growth of the interval after each failure, as in Konnectivity. */
const BACKOFF_FACTOR = 1.5;
/** The interval after a success, a first failure and a first duplicate, as a part of `syncIntervalMs`. */
const QUICK = 1 / 4;
/**
 * Duplicates in a row, divided by the number of servers, up to which the interval is {@link QUICK}, and half the usual one. Behind a
 * balancer with three servers one agent in ten thousand still misses a server then.
 */
const DUPLICATES = { quick: 2, usual: 8 };
/** Share that is added at random to each interval. */
const JITTER = 0.1;

export interface ServerSetOptions {
  readonly syncIntervalMs: number;
  readonly syncIntervalCapMs: number;
  /** The first attempt after a lost stream waits for a random time of up to this, in milliseconds. */
  readonly reconnectJitterMs: number;
  /** If true, the agent continues to connect when it is connected to as many servers as are known. */
  readonly syncForever: boolean;
  readonly capabilities: ReadonlySet<Capability>;
  readonly countSource: "default" | "max";
  readonly link: AgentLinkOptions;
}

export interface ServerSetDeps {
  /**
   * Opens a stream to the first new server that answers; `undefined` if only others do. Rejects with {@link LinkError}. `onUnanswered`: addresses of
   * servers that may be missing did not answer, and one that may lead to any server is tried.
   */
  readonly connect: (round: {
    readonly signal: AbortSignal;
    /** The number of servers that are known. */
    readonly servers: number;
    readonly isNew: (stream: OpenedStream) => boolean;
    readonly onUnanswered: (error: LinkError) => void;
  }) => Promise<OpenedStream | undefined>;
  readonly metrics: AgentMetrics;
  readonly clock: Clock;
  readonly log: Logger;
  readonly budget: BufferBudget;
  readonly names: Names;
  /** The number of valid Leases of servers, if they are counted. */
  readonly leases?: () => number | undefined;
  readonly random?: () => number;
  readonly onBug: (error: unknown) => void;
  /** Called when the set of links has changed. */
  readonly onChange?: () => void;
}

/** The time for which a server may be missing beside others before that is told, in milliseconds: behind a balancer it takes some attempts to meet each. */
const MISSING_MS = 60_000;

/** The outcome of an attempt to connect. */
type Outcome = "connected" | "duplicate" | "enough" | "failed" | "interrupted";

/** The agent's streams: at most one to each server, and one to every server that is known (docs/spec/tunnel.md#11). */
export class ServerSet {
  readonly #deps: ServerSetDeps;
  readonly #options: ServerSetOptions;
  readonly #count: ServerCount;
  readonly #links = new Map<string, AgentLink>();
  readonly #leaving = new Set<AgentLink>();
  readonly #random: () => number;
  readonly #loop: Loop;
  readonly #backoff: Backoff;
  #draining = false;
  #lost = false;
  /** Number of consecutive duplicates. */
  #duplicates = 0;
  /** The time since which there are servers without a stream of this agent beside some with one, `Clock.monotonic` milliseconds. */
  #missingSince: number | undefined;
  #isMissingTold = false;
  #failures = 0;
  /** Ends the attempt under way. */
  #interrupt: (() => void) | undefined;

  constructor(deps: ServerSetDeps, options: ServerSetOptions) {
    this.#deps = deps;
    this.#options = options;
    this.#random = deps.random ?? Math.random;
    const { syncIntervalMs } = options;
    this.#loop = new Loop({ everyMs: syncIntervalMs, gatherMs: () => this.#gatherMs(), clock: deps.clock });
    const initialMs = syncIntervalMs * QUICK;
    this.#backoff = new Backoff({ initialMs, maxMs: Number.POSITIVE_INFINITY, factor: BACKOFF_FACTOR, jitter: 0 });
    this.#count = new ServerCount(deps.clock, {
      source: options.countSource,
      ...(deps.leases === undefined ? {} : { leases: deps.leases }),
    });
  }

  /** Live streams. */
  get links(): readonly AgentLink[] {
    return [...this.#links.values()];
  }

  /** Streams that new reverse connections may use. */
  get usable(): readonly AgentLink[] {
    return this.links.filter((link) => !this.#leaving.has(link) && !link.mux.isClosed);
  }

  get isReady(): boolean {
    return this.#links.size > 0;
  }

  /** Open connections over all streams. */
  get connections(): number {
    return this.links.reduce((sum, link) => sum + link.mux.connections, 0);
  }

  /** Connects to servers until the signal aborts. After the abort the streams stay open; {@link close} ends them. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    await this.#loop.run(() => this.#connectAndCount(signal), { signal });
  }

  async #connectAndCount(signal: AbortSignal): Promise<PassResult> {
    const outcome = await this.#connectOnce(signal);
    if (signal.aborted) return { againMs: 0 };
    this.#noteOutcome(outcome);
    // Without any server the node is cut off: the back-off ends at the usual interval then.
    const { syncIntervalMs, syncIntervalCapMs } = this.#options;
    const capMs = this.usable.length === 0 ? Math.min(syncIntervalMs, syncIntervalCapMs) : syncIntervalCapMs;
    const intervalMs = Math.min(this.#intervalAfter(outcome), capMs) * (1 + JITTER * this.#random());
    return { againMs: intervalMs };
  }

  #noteOutcome(outcome: Outcome): void {
    if (outcome === "interrupted") return;
    this.#failures = outcome === "failed" ? this.#failures + 1 : 0;
    if (outcome === "duplicate") this.#duplicates += 1;
    else if (outcome !== "failed") this.#duplicates = 0;
  }

  #intervalAfter(outcome: Outcome): number {
    const { syncIntervalMs } = this.#options;
    switch (outcome) {
      case "enough":
      case "interrupted":
        return syncIntervalMs;
      case "connected":
        return syncIntervalMs * QUICK;
      case "failed":
        return this.#backoff.delay(this.#failures - 1);
      case "duplicate": {
        const servers = this.#count.value;
        if (this.#duplicates <= DUPLICATES.quick * servers) return syncIntervalMs * QUICK;
        const beyond = this.#duplicates - DUPLICATES.usual * servers;
        if (beyond <= 0) return syncIntervalMs / 2;
        // If every attempt leads to a server that is connected already, the interval gets longer and longer.
        return syncIntervalMs * 2 ** Math.min(beyond, 30);
      }
      default:
        return assertNever(outcome);
    }
  }

  /** Stops opening streams, and sends DRAIN to every server. Open connections continue. */
  drain(): void {
    if (this.#draining) return;
    this.#draining = true;
    for (const link of this.links) link.mux.drain();
  }

  /** Checks at once whether a server is missing, for example after Leases have changed. */
  sync(): void {
    this.#loop.wake("servers");
  }

  /** Ends each stream after the bytes that wait to be sent. */
  close(): void {
    for (const link of this.links) link.mux.end();
  }

  async #connectOnce(signal: AbortSignal): Promise<Outcome> {
    const known = this.#count.value;
    this.#deps.metrics.knownServers(known);
    if (this.#draining) return "enough";
    this.#noteMissing(known);
    if (!this.#options.syncForever && this.usable.length >= known) return "enough";
    const attempt = new AbortController();
    this.#interrupt = () => attempt.abort();
    try {
      const onUnanswered = (error: LinkError): void => this.#unanswered(error);
      const both = AbortSignal.any([signal, attempt.signal]);
      const isNew = (stream: OpenedStream): boolean => !this.#links.has(header(stream, MetadataKey.serverID) ?? "");
      const stream = await this.#deps.connect({ signal: both, servers: known, isNew, onUnanswered });
      return stream === undefined ? "duplicate" : this.#join(stream);
    } catch (error) {
      if (signal.aborted) return "failed";
      if (attempt.signal.aborted) return "interrupted";
      if (!(error instanceof LinkError)) throw error;
      this.#unanswered(error);
      return "failed";
    }
  }

  /** Names the servers that are connected when others are missing for long: of a server that nobody reaches, no other log tells. */
  #noteMissing(known: number): void {
    const { clock, log } = this.#deps;
    const connected = this.usable.map(({ serverID }) => serverID);
    const isMissing = connected.length > 0 && connected.length < known;
    if (!isMissing) {
      if (this.#isMissingTold && connected.length > 0) log.info("all proxy servers are connected", { connected });
      this.#missingSince = undefined;
      this.#isMissingTold = false;
      return;
    }
    this.#missingSince ??= clock.monotonic();
    if (this.#isMissingTold || clock.monotonic() - this.#missingSince < MISSING_MS) return;
    this.#isMissingTold = true;
    log.warn("some proxy servers are not reached: they have no stream of this agent", { connected, servers: known });
  }

  #unanswered(error: LinkError): void {
    this.#deps.metrics.serverFailure("to_server");
    this.#deps.log.warn("cannot connect to a proxy server", { reason: describeError(error) });
  }

  #join(stream: OpenedStream): Outcome {
    const { metrics, log, clock, budget, names, onBug } = this.#deps;
    const serverID = header(stream, MetadataKey.serverID);
    const count = header(stream, MetadataKey.serverCount);
    if (serverID === undefined || count === undefined || !/^\d{1,6}$/.test(count)) {
      stream.discard();
      throw new LinkError("protocol", "the server did not send exactly one serverID and one serverCount");
    }
    if (this.#links.has(serverID) || this.#draining) {
      stream.discard();
      return "duplicate";
    }
    const link: AgentLink = new AgentLink(
      serverID,
      stream,
      {
        log,
        clock,
        budget,
        names,
        metrics,
        onBug,
        capabilities: sharedCapabilities(this.#options.capabilities, header(stream, MetadataKey.capabilities)),
        onClosed: (fault) => this.#closed(link, fault?.message),
      },
      this.#options.link,
    );
    stream.onLeaving(() => {
      this.#leaving.add(link);
      log.info("a proxy server is shutting down", { serverID });
      this.sync();
    });
    this.#links.set(serverID, link);
    this.#count.opened(serverID, Number(count));
    this.#changed();
    log.info("connected to a proxy server", { serverID, serverCount: Number(count) });
    return "connected";
  }

  #closed(link: AgentLink, reason: string | undefined): void {
    if (this.#links.get(link.serverID) === link) this.#links.delete(link.serverID);
    this.#leaving.delete(link);
    this.#count.closed(link.serverID);
    this.#deps.metrics.serverFailure("from_server");
    this.#deps.log.info("the connection to a proxy server ended", { serverID: link.serverID, reason });
    this.#lost = true;
    this.#changed();
    this.sync();
    // The address that has lost its stream is none of those that the attempt tries, and may answer sooner.
    this.#interrupt?.();
  }

  #changed(): void {
    this.#deps.metrics.serverConnections(this.#links.size);
    this.#deps.onChange?.();
  }

  /** The pause before the next attempt, in milliseconds. After a lost stream it is random, so that the agents of a cluster do not all connect at once. */
  #gatherMs(): number {
    if (!this.#lost) return 0;
    this.#lost = false;
    this.#deps.metrics.reconnected();
    return this.#random() * this.#options.reconnectJitterMs;
  }
}

/** The value of a response header; `undefined` if the header is missing or has several values. */
function header(stream: OpenedStream, name: string): string | undefined {
  const value = stream.headers[name];
  return typeof value === "string" && !value.includes(", ") ? value : undefined;
}
