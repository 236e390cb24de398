import { assertNever } from "#base/errors";
import {
  CONNECTION_ESTABLISHED,
  ConnectReader,
  encodeReply,
  formatHostPort,
  type HostPort,
  type ReplyStatus,
  statusOfDialError,
} from "#wire/http-connect";
import { freshRandom } from "../dial/fresh-random.ts";
import type { WatchedSide } from "../local/local-side.ts";
import { ReplyGate } from "../local/reply-gate.ts";
import type { ConnectClient } from "./connect-client.ts";
import type { ForwardFailure, ForwardObserver, FrontendDeps } from "./forward.ts";

/** The time that a client may take to send its request, milliseconds (docs/spec/tunnel.md#5.4). */
const HEAD_TIMEOUT_MS = 60_000;

/** Serves HTTP CONNECT on one connection (docs/spec/tunnel.md#6). `onRequest` is called when its request has come, or was refused. */
export function serveConnectFrontend(client: ConnectClient, deps: FrontendDeps, onRequest?: () => void): void {
  const { metrics } = deps;
  metrics.httpConnections(1);
  client.wire.once("close", () => metrics.httpConnections(-1));
  new RequestPhase(client, deps, onRequest).start();
}

/** Reads the request of a client. Nothing refers to it when the request is there: a connection may be idle for days after that. */
class RequestPhase {
  readonly #client: ConnectClient;
  readonly #deps: FrontendDeps;
  readonly #reader = new ConnectReader();
  readonly #timer: NodeJS.Timeout;
  readonly #onRequest: (() => void) | undefined;

  constructor(client: ConnectClient, deps: FrontendDeps, onRequest: (() => void) | undefined) {
    this.#client = client;
    this.#deps = deps;
    this.#onRequest = onRequest;
    this.#timer = setTimeout(() => client.wire.destroy(), HEAD_TIMEOUT_MS).unref();
  }

  start(): void {
    const { wire } = this.#client;
    wire.on("data", this.#onData);
    wire.once("end", this.#onEnd);
    wire.once("close", this.#stop);
    wire.resume();
  }

  readonly #onData = (chunk: Uint8Array): void => {
    const progress = this.#reader.push(chunk);
    if (progress.kind === "need-more") return;
    this.#onRequest?.();
    this.#stop();
    if (progress.kind === "refused") refuse(this.#client, progress.status, progress.body);
    else dial(this.#client, progress.target, progress.rest, this.#deps);
  };

  readonly #onEnd = (): void => {
    this.#stop();
    this.#client.wire.destroy();
  };

  readonly #stop = (): void => {
    const { wire } = this.#client;
    clearTimeout(this.#timer);
    wire.off("data", this.#onData);
    wire.off("end", this.#onEnd);
    wire.off("close", this.#stop);
    wire.pause();
  };
}

function dial(client: ConnectClient, target: HostPort, rest: Uint8Array, deps: FrontendDeps): void {
  const { forwarder, clock, closeLingerMs } = deps;
  const side = client.side({ closeLingerMs });
  const local = new ReplyGate(side, client, clock);
  const connection = forwarder.dial(
    {
      protocol: "tcp",
      address: formatHostPort(target),
      random: freshRandom(),
      local,
      localHalfClose: true,
    },
    new DialReply(client, side, local),
  );
  if (connection === undefined) return;
  // A client that closes, or ends its sending, before the tunnel is open cancels the dial.
  // A copy: they are a view of a read, whose buffer belongs to all streams.
  side.watch(connection, rest.length > 0 ? [Buffer.from(rest)] : []);
}

/** Answers the client when its dial is open or has failed. */
class DialReply implements ForwardObserver {
  readonly #client: ConnectClient;
  readonly #side: WatchedSide;
  readonly #gate: ReplyGate;

  constructor(client: ConnectClient, side: WatchedSide, gate: ReplyGate) {
    this.#client = client;
    this.#side = side;
    this.#gate = gate;
  }

  onConnected(): void {
    this.#client.reply(CONNECTION_ESTABLISHED, () => this.#gate.replied());
  }

  onDialFailed(failure: ForwardFailure): void {
    this.#side.unwatch();
    const [status, body] = replyTo(failure);
    refuse(this.#client, status, body);
  }

  onDisconnected(): void {
    // The connection closes the client.
  }
}

function refuse({ wire }: ConnectClient, status: ReplyStatus, body: string): void {
  wire.end(encodeReply(status, body));
  // Discard the client's further bytes: closing with unread bytes would reset the connection and lose the reply.
  wire.on("data", () => undefined);
  wire.resume();
  const timer = setTimeout(() => wire.destroy(), 1000);
  timer.unref();
  wire.once("close", () => clearTimeout(timer));
}

function replyTo(failure: ForwardFailure): readonly [ReplyStatus, string] {
  switch (failure.kind) {
    case "no-agent":
      return [503, "currently no tunnels available: no agent is connected"];
    case "limit":
      return [503, "currently no tunnels available: too many connections"];
    case "timeout":
      return [504, "timed out waiting for backend dial"];
    case "refused":
      return [statusOfDialError(failure.error), failure.error];
    case "aborted":
      return [502, "the agent cancelled the connection"];
    case "link-lost":
      return [502, "the connection to the agent was lost while dialing"];
    case "duplicate":
    case "address":
    case "protocol":
      return [502, `the dial failed: ${failure.kind}`];
    default:
      return assertNever(failure);
  }
}
