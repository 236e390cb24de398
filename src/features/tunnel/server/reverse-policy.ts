import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import type { Names } from "#base/names";
import { RateLimitedLog } from "#base/rate-limit";
import { formatHostPort, type HostPort, parseHostPort } from "#wire/http-connect";
import type { DialRequest } from "#wire/konnectivity";
import type { DialDecision } from "../dial/dial-acceptor.ts";
import type { TransportPeer } from "../http2/transport.ts";
import { DialError, dialTcp } from "../local/dial-tcp.ts";
import { StreamSide } from "../local/stream-side.ts";
import type { LinkMux } from "../mux/link-mux.ts";
import { MAX_ADDRESS_LENGTH } from "../mux/options.ts";
import { AgentLimiters, type AgentLimits } from "./agent-limiters.ts";
import { type AllowedDestination, findDestination } from "./allowed-destination.ts";
import type { ReverseDialResult, ServerMetrics } from "./metrics.ts";

/** The number of characters of an address that is too long which the log shows. */
const LOGGED_ADDRESS_LENGTH = 100;

export interface ReverseLimits extends AgentLimits {
  /** The time that a dial may take, in milliseconds. */
  readonly dialTimeoutMs: number;
}

/** The policy for one stream of an agent. */
export interface ReverseSession {
  decide(request: DialRequest, mux: LinkMux): DialDecision;
  failureText(error: unknown): string | undefined;
  /** To be called when the stream has ended. */
  close(): void;
}

export interface ReversePolicyDeps {
  readonly clock: Clock;
  readonly names: Names;
  readonly log: Logger;
  readonly metrics: ServerMetrics;
}

/**
 * The destinations that agents may reach from the control plane's side (docs/spec/tunnel.md#9.5). A destination is denied unless it is
 * listed. The server dials the address of the list's entry, never the text of the agent. No name is resolved before the dial is allowed.
 */
export class ReversePolicy {
  readonly #deps: ReversePolicyDeps;
  readonly #limits: ReverseLimits;
  #destinations: readonly AllowedDestination[];
  #stopped = false;
  readonly #warnings: RateLimitedLog;
  readonly #limiters: AgentLimiters;

  constructor(
    deps: ReversePolicyDeps,
    options: { readonly destinations: readonly AllowedDestination[]; readonly limits: ReverseLimits },
  ) {
    this.#deps = deps;
    this.#limits = options.limits;
    this.#destinations = options.destinations;
    this.#warnings = new RateLimitedLog(deps);
    this.#limiters = new AgentLimiters(deps.clock, options.limits);
  }

  /** From now on every dial is refused with an error text that makes the agent try another server. */
  stop(): void {
    this.#stopped = true;
  }

  /** Replaces the list for later dials. Open connections continue. */
  replace(destinations: readonly AllowedDestination[]): void {
    this.#destinations = destinations;
  }

  /** The policy as it applies to one agent stream. */
  session(agent: {
    readonly agentID: string;
    readonly peer: TransportPeer;
    /** The agent's identity by the rules about agents, if there are any. */
    readonly identity?: string | undefined;
  }): ReverseSession {
    const { metrics } = this.#deps;
    const limiter = this.#limiters.open(limitedAs(agent));
    const refuse = (result: ReverseDialResult, error: string, address: string): DialDecision => {
      metrics.reverseDial(result);
      this.#warnings.warn("a dial by an agent was refused", { agentID: agent.agentID, address, reason: error });
      return { kind: "refuse", error };
    };
    return {
      decide: ({ protocol, address }) => {
        if (address.length > MAX_ADDRESS_LENGTH) {
          return refuse("denied", "the address is too long", address.slice(0, LOGGED_ADDRESS_LENGTH));
        }
        // The text begins like that of a failed dial, so that the agent tries another server.
        if (this.#stopped) return refuse("stopping", `dial tcp ${address}: the proxy server is stopping`, address);
        const wanted = parseHostPort(address);
        const found = wanted === undefined ? undefined : findDestination(this.#destinations, wanted, agent.peer);
        if (protocol !== "tcp" || found === undefined) return refuse("denied", "destination not allowed", address);
        const release = limiter.reserve();
        if (release === undefined) return refuse("limited", "too many connections", address);
        return { kind: "connect", connect: ({ signal }) => this.#dial(found, release, signal) };
      },
      failureText: (error) => {
        if (!(error instanceof DialError)) return undefined;
        metrics.reverseDial("dial_error");
        return error.message;
      },
      close: () => limiter.close(),
    };
  }

  /** Dials the destination. Releases the reserved place when the dial fails or the socket closes. */
  async #dial(destination: HostPort, release: () => void, signal: AbortSignal): Promise<StreamSide> {
    try {
      const socket = await dialTcp(destination, {
        names: this.#deps.names,
        timeoutMs: this.#limits.dialTimeoutMs,
        signal,
      });
      socket.once("close", release);
      if (socket.closed) release();
      this.#deps.metrics.reverseDial("ok");
      return new StreamSide(socket);
    } catch (error) {
      release();
      throw error;
    }
  }

  /** The list as text, for logs. */
  describe(): string {
    return this.#destinations.map(formatHostPort).join(", ");
  }
}

/** To whom the limits apply: an agent can change its id to get new ones, but neither what its credential says nor its certificate's name. */
function limitedAs({ agentID, peer, identity }: Parameters<ReversePolicy["session"]>[0]): string {
  if (identity !== undefined) return `identity ${identity}`;
  return peer.commonName === undefined ? `id ${agentID}` : `name ${peer.commonName}`;
}
