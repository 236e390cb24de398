import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import { formatHostPort, parseHostPort } from "#wire/http-connect";
import type { DialRequest } from "#wire/konnectivity";
import type { DialDecision } from "../dial/acceptors.ts";
import { DialError, dialTcp } from "../ends/dial-tcp.ts";
import { SocketEnd } from "../ends/socket-end.ts";
import type { StreamPeer } from "../link/incoming.ts";
import type { LinkMux } from "../mux/link-mux.ts";
import { RateLimit } from "../mux/rate-limit.ts";
import { type AllowedDestination, findDestination } from "./allowed-destination.ts";
import type { ServerMetrics } from "./metrics.ts";

export interface ReverseLimits {
  /** Open connections of one agent stream. */
  readonly maxConnections: number;
  /** Dials a second of one agent stream. The burst is twice this. */
  readonly dialRate: number;
  /** How long a dial may take, milliseconds. */
  readonly dialTimeoutMs: number;
}

/** What one agent may reach. */
export interface ReverseSession {
  decide(request: DialRequest, mux: LinkMux): DialDecision;
  failureText(error: unknown): string | undefined;
  opened(): void;
  closed(): void;
}

/**
 * Which destinations agents may reach from the control plane's side (spec tunnel 9.5). Denied unless listed; what is dialled
 * is the entry of the list, never the agent's text, and nothing is resolved before the answer is yes.
 */
export class ReversePolicy {
  readonly #deps: { readonly clock: Clock; readonly log: Logger; readonly metrics: ServerMetrics };
  readonly #limits: ReverseLimits;
  #destinations: readonly AllowedDestination[];
  #stopped = false;
  /** Warnings of refusals, one a second for the whole server, so that an agent cannot fill the log. */
  readonly #warnings: RateLimit;

  constructor(
    deps: { readonly clock: Clock; readonly log: Logger; readonly metrics: ServerMetrics },
    options: { readonly destinations: readonly AllowedDestination[]; readonly limits: ReverseLimits },
  ) {
    this.#deps = deps;
    this.#limits = options.limits;
    this.#destinations = options.destinations;
    this.#warnings = new RateLimit(deps.clock, { perSecond: 1, burst: 5 });
  }

  /** From now on every dial is refused, in words that make the agent try another server. */
  stop(): void {
    this.#stopped = true;
  }

  /** Takes a new list for dials to come; open connections stay. */
  replace(destinations: readonly AllowedDestination[]): void {
    this.#destinations = destinations;
  }

  /** The policy as it applies to one agent stream. */
  session(agent: { readonly agentID: string; readonly peer: StreamPeer }): ReverseSession {
    const { metrics, log, clock } = this.#deps;
    const limits = this.#limits;
    const rate = new RateLimit(clock, { perSecond: limits.dialRate, burst: 2 * limits.dialRate });
    let open = 0;
    const refuse = (result: string, error: string, address: string): DialDecision => {
      metrics.reverseDial(result);
      if (this.#warnings.take()) log.warn("reverse dial refused", { agentID: agent.agentID, address, reason: error });
      return { kind: "refuse", error };
    };
    return {
      decide: ({ protocol, address }) => {
        // Begins as a failed dial does: then the agent may try another server.
        if (this.#stopped) return refuse("stopping", `dial tcp ${address}: the server is stopping`, address);
        const wanted = parseHostPort(address);
        const found = wanted === undefined ? undefined : findDestination(this.#destinations, wanted, agent.peer);
        if (protocol !== "tcp" || found === undefined) return refuse("denied", "destination not allowed", address);
        if (open >= limits.maxConnections || !rate.take()) return refuse("limited", "too many connections", address);
        return {
          kind: "connect",
          connect: async ({ signal }) => {
            const socket = await dialTcp(found, { timeoutMs: limits.dialTimeoutMs, signal });
            metrics.reverseDial("ok");
            return new SocketEnd(socket);
          },
        };
      },
      failureText: (error) => {
        if (!(error instanceof DialError)) return undefined;
        metrics.reverseDial("dial_error");
        return error.message;
      },
      opened: () => {
        open += 1;
      },
      closed: () => {
        open -= 1;
      },
    };
  }

  /** The list as text, for logs. */
  describe(): string {
    return this.#destinations.map(formatHostPort).join(", ");
  }
}
