import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import type { Names } from "#base/names";
import { parseHostPort } from "#wire/http-connect";
import type { Capability } from "#wire/konnectivity";
import { DialAcceptor } from "../dial/dial-acceptor.ts";
import type { OpenedStream } from "../link/outgoing.ts";
import type { StreamFault } from "../link/packet-stream.ts";
import type { Pulse } from "../link/session.ts";
import { type AddressFilter, DialError, dialTcp } from "../local/dial-tcp.ts";
import { StreamSide } from "../local/stream-side.ts";
import type { BufferBudget } from "../mux/budget.ts";
import { LinkMux } from "../mux/link-mux.ts";
import { MAX_ADDRESS_LENGTH, type MuxOptions } from "../mux/options.ts";
import type { AgentMetrics } from "./metrics.ts";

export interface AgentLinkOptions {
  readonly mux: MuxOptions;
  /** The time that connecting to an endpoint may take, in milliseconds. */
  readonly dialTimeoutMs: number;
  /** At the end of a connection, its endpoint is dropped after this time without progress, in milliseconds. */
  readonly closeLingerMs: number;
  /** The addresses that may be connected to; names are resolved first. Default: any address. */
  readonly allowed?: AddressFilter;
}

export interface AgentLinkDeps {
  readonly log: Logger;
  readonly clock: Clock;
  readonly budget: BufferBudget;
  readonly metrics: AgentMetrics;
  readonly names: Names;
  readonly capabilities: ReadonlySet<Capability>;
  readonly onClosed: (fault: StreamFault | undefined) => void;
  /** Receives unexpected errors; they should end the program. */
  readonly onBug: (error: unknown) => void;
}

/** The stream to one server, on the agent: connects to endpoints for the server, and dials the server for local clients. */
export class AgentLink {
  readonly serverID: string;
  readonly mux: LinkMux;
  readonly pulse: Pulse;
  readonly #acceptors: DialAcceptor;

  constructor(serverID: string, stream: OpenedStream, deps: AgentLinkDeps, options: AgentLinkOptions) {
    this.serverID = serverID;
    this.pulse = stream.pulse;
    const { metrics, clock } = deps;
    let blocked = 0;
    this.mux = new LinkMux(
      (handlers) => stream.start(handlers, { budget: deps.budget }),
      {
        side: "agent",
        clock,
        budget: deps.budget,
        capabilities: deps.capabilities,
        handlers: {
          onDialRequest: (request) => this.#acceptors.accept(request),
          onDialCancelled: (random) => this.#acceptors.cancel(random),
          onUnmatchedDialResponse: () => undefined,
          // DRAIN is not sent in this direction: a server ends its streams.
          onDrain: () => undefined,
          onPacket: (direction, type) => metrics.packet(direction === "in" ? "to_agent" : "from_agent", type),
          onBlocked: (channels) => {
            metrics.fullReceiveChannels(channels - blocked);
            blocked = channels;
          },
          onSlowConsumerClosed: () =>
            deps.log.info("an endpoint or client that reads too slowly held too many bytes; its connection is closed"),
          onEnd: () => this.mux.end(),
          onClosed: (fault) => {
            if (fault !== undefined) metrics.streamError("to_agent", fault.code, "Unknown");
            if (fault !== undefined && this.mux.queuedBytes > 0) metrics.streamError("from_agent", fault.code, "DATA");
            this.#acceptors.linkLost();
            deps.onClosed(fault);
          },
        },
      },
      options.mux,
    );
    this.#acceptors = new DialAcceptor(this.mux, {
      clock,
      closeLingerMs: options.closeLingerMs,
      maxPendingDials: options.mux.maxPendingDials,
      decide: (request) => {
        if (request.protocol !== "tcp") return { kind: "refuse", error: "protocol not supported" };
        if (request.address.length > MAX_ADDRESS_LENGTH) return { kind: "refuse", error: "the address is too long" };
        const target = parseHostPort(request.address);
        if (target === undefined) {
          return { kind: "refuse", error: `dial tcp: address ${JSON.stringify(request.address)}: not a host and port` };
        }
        return {
          kind: "connect",
          connect: async ({ signal }) => {
            const started = clock.monotonic();
            const socket = await dialTcp(target, {
              names: deps.names,
              timeoutMs: options.dialTimeoutMs,
              signal,
              ...(options.allowed === undefined ? {} : { allowed: options.allowed }),
            });
            metrics.dialLatency((clock.monotonic() - started) / 1000);
            return new StreamSide(socket);
          },
        };
      },
      failureText: (error) => {
        if (!(error instanceof DialError)) return undefined;
        metrics.dialFailed(error.code === "timeout" ? "timeout" : "unknown");
        return error.message;
      },
      onOpened: () => metrics.endpointConnections(1),
      onClosed: () => metrics.endpointConnections(-1),
      onBug: deps.onBug,
    });
  }
}
