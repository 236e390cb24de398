import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import { socketAddress } from "#base/ip";
import type { Logger } from "#base/log";
import type { RateLimitedLog } from "#base/rate-limit";
import { GrpcCode } from "#wire/grpc";
import {
  type AgentIdentifiers,
  type Capability,
  formatCapabilities,
  IdentifiersError,
  MetadataKey,
  parseIdentifiers,
  sharedCapabilities,
} from "#wire/konnectivity";
import { DialAcceptor } from "../dial/dial-acceptor.ts";
import type { Admission, AgentGate, AgentRefusal } from "../identity/agent-gate.ts";
import type { TokenNames } from "../identity/credential.ts";
import type { IncomingStream } from "../link/incoming.ts";
import type { StreamFault } from "../link/packet-stream.ts";
import type { BufferBudget } from "../mux/budget.ts";
import { LinkMux } from "../mux/link-mux.ts";
import type { MuxOptions } from "../mux/options.ts";
import type { AgentAcceptLimiter } from "./agent-accept-limiter.ts";
import { AgentAuthError, type AgentAuthenticator } from "./agent-auth.ts";
import { agentKey, Backend, type Backends } from "./backends.ts";
import type { ServerMetrics } from "./metrics.ts";
import type { ReversePolicy, ReverseSession } from "./reverse-policy.ts";

/** Maximum length of an agent's id, in bytes. Longer ids are refused. */
const MAX_AGENT_ID_BYTES = 256;
/** Maximum of hosts and ranges that an agent may name, and of streams with one agentID; further ones are refused (docs/spec/tunnel.md#7.2). */
const MAX_IDENTIFIERS = 256;
const MAX_AGENT_STREAMS = 64;
/** An agent ends a stream that it does not keep, such as a second one to the same server, before this time, in milliseconds. */
const KEPT_MS = 1000;
/** Maximum length of the reason why an agent is refused, in characters. */
const MAX_REASON_LENGTH = 300;
/** Maximum of what an agent may name as its dial timeout, in milliseconds; more counts as this. */
const MAX_DIAL_TIMEOUT_MS = 60_000;
/** Maximum of an agent's hosts that a line of the log has. */
const MAX_LOGGED_ADDRESSES = 8;
const VISIBLE_ASCII = /^[\x21-\x7e]+$/;
/** The time that the authentication of an agent may take, in milliseconds. */
const AUTH_TIMEOUT_MS = 10_000;

export interface AgentStreamDeps {
  readonly backends: Backends;
  readonly metrics: ServerMetrics;
  readonly budget: BufferBudget;
  readonly clock: Clock;
  readonly log: Logger;
  /** The log for lines that agents and their Nodes can cause, such as those about rejected streams. */
  readonly refusals: RateLimitedLog;
  /** Absent: every agent that passed TLS is admitted. */
  readonly authenticator: AgentAuthenticator | undefined;
  /** Absent: an agent is what it says (docs/spec/tunnel.md#10.1). */
  readonly gate: AgentGate | undefined;
  /** Absent: agents are admitted at once. */
  readonly acceptLimiter: AgentAcceptLimiter | undefined;
  /** Destinations that agents may reach on this side; absent while the gate is off. */
  readonly reverse: ReversePolicy | undefined;
  readonly onBug: (error: unknown) => void;
}

export interface AgentStreamOptions {
  readonly serverID: string;
  /** The `serverCount` header; called for each agent. */
  readonly serverCount: () => number;
  readonly capabilities: ReadonlySet<Capability>;
  readonly mux: MuxOptions;
  readonly closeLingerMs: number;
}

interface AgentIdentity {
  readonly agentID: string;
  readonly identifiers: AgentIdentifiers;
}

/** Serves one stream of `AgentService/Connect` (docs/spec/tunnel.md#2, #5.2). Rejects only for a bug. */
export async function serveAgentStream(
  incoming: IncomingStream,
  deps: AgentStreamDeps,
  options: AgentStreamOptions,
): Promise<void> {
  const introduced = identityOf(incoming);
  if ("code" in introduced) {
    deps.refusals.warn("agent refused", { peer: incoming.peer.address, reason: introduced.message });
    incoming.reject(introduced);
    return;
  }
  // With rules the agentID alone is nobody's: others could use up its owner's streams.
  if (deps.gate === undefined && refuseSurplus(incoming, introduced.agentID, deps)) return;
  if (deps.acceptLimiter !== undefined && !(await deps.acceptLimiter.admit(incoming))) {
    incoming.reject({ code: GrpcCode.unavailable, message: "too many agents connect at once; try again" });
    return;
  }
  const token = await authenticate(incoming, introduced.agentID, deps);
  if (token !== undefined && "code" in token) {
    incoming.reject(token);
    return;
  }
  if (incoming.isGone) return;
  const { certificate, address } = incoming.peer;
  const from = socketAddress(address.slice(0, address.lastIndexOf(":")));
  const admission = deps.gate?.admit({ certificate, token }, { ...introduced, from });
  if (admission?.kind === "refused") {
    refuseByRules(incoming, introduced.agentID, admission, deps);
    return;
  }
  // Others may have come meanwhile.
  if (refuseSurplus(incoming, introduced.agentID, deps, admission?.identity)) {
    admission?.release();
    return;
  }
  registerAgent(incoming, introduced, admission, deps, options);
}

/** Refuses an agent that the rules do not admit, so that a Konnectivity agent logs why and tries again. */
function refuseByRules(
  incoming: IncomingStream,
  agentID: string,
  { reason, message, identity }: AgentRefusal,
  { refusals, metrics }: Pick<AgentStreamDeps, "refusals" | "metrics">,
): void {
  metrics.agentRefused(reason);
  refusals.warn("agent refused", { agentID, identity, peer: incoming.peer.address, reason: message });
  incoming.reject(faultOf({ reason, message }));
}

function faultOf({ reason, message }: Pick<AgentRefusal, "reason" | "message">): StreamFault {
  const code = reason === "limit" ? GrpcCode.resourceExhausted : GrpcCode.permissionDenied;
  return { code, message: message.slice(0, MAX_REASON_LENGTH) };
}

/** Refuses a stream of an agent that has too many. Returns whether it did. */
function refuseSurplus(
  incoming: IncomingStream,
  agentID: string,
  { backends, refusals }: Pick<AgentStreamDeps, "backends" | "refusals">,
  identity?: string,
): boolean {
  if (backends.streamsOf(agentKey(agentID, identity)) < MAX_AGENT_STREAMS) return false;
  const message = `the agent has ${MAX_AGENT_STREAMS} streams already`;
  refusals.warn("agent refused", { agentID, identity, peer: incoming.peer.address, reason: message });
  incoming.reject({ code: GrpcCode.resourceExhausted, message });
  return true;
}

function identityOf(incoming: IncomingStream): AgentIdentity | StreamFault {
  const refuse = (message: string): StreamFault => ({ code: GrpcCode.invalidArgument, message });
  const ids = incoming.metadata(MetadataKey.agentID);
  const [agentID = ""] = ids;
  if (ids.length !== 1) return refuse(`expected one agentID, got ${ids.length}`);
  if (!VISIBLE_ASCII.test(agentID)) return refuse("the agentID must be visible ASCII and not empty");
  if (agentID.length > MAX_AGENT_ID_BYTES) return refuse(`the agentID is longer than ${MAX_AGENT_ID_BYTES} bytes`);
  const texts = incoming.metadata(MetadataKey.agentIdentifiers);
  if (texts.length > 1) return refuse(`expected at most one agentIdentifiers, got ${texts.length}`);
  try {
    const identifiers = parseIdentifiers(texts[0] ?? "", { unknownKeys: "ignore" });
    const { ipv4, ipv6, host, cidr } = identifiers;
    const count = ipv4.length + ipv6.length + host.length + cidr.length;
    if (count > MAX_IDENTIFIERS) return refuse(`expected at most ${MAX_IDENTIFIERS} agentIdentifiers, got ${count}`);
    return { agentID, identifiers };
  } catch (error) {
    if (!(error instanceof IdentifiersError)) throw error;
    // The message quotes the peer's text.
    return refuse(error.message.slice(0, MAX_REASON_LENGTH));
  }
}

/** Reads how long the agent dials, in milliseconds. Returns `undefined` if it does not say so, as Konnectivity's, or not in whole milliseconds. */
function dialTimeoutOf(incoming: IncomingStream): number | undefined {
  const [text = "", ...more] = incoming.metadata(MetadataKey.dialTimeout);
  if (more.length > 0 || !/^[0-9]{1,9}$/.test(text)) return undefined;
  return Math.min(Number(text), MAX_DIAL_TIMEOUT_MS);
}

/** Resolves to what the agent's token says; `undefined` if none is asked for. */
async function authenticate(
  incoming: IncomingStream,
  agentID: string,
  { authenticator, refusals }: AgentStreamDeps,
): Promise<TokenNames | StreamFault | undefined> {
  if (authenticator === undefined) return undefined;
  try {
    const signal = AbortSignal.timeout(AUTH_TIMEOUT_MS);
    return await authenticator.authenticate(incoming.metadata("authorization"), { signal });
  } catch (error) {
    if (!(error instanceof AgentAuthError)) throw error;
    refusals.warn("agent not authenticated", { agentID, peer: incoming.peer.address, reason: describeError(error) });
    const code = error.code === "unauthenticated" ? GrpcCode.unauthenticated : GrpcCode.unavailable;
    // The reason is logged, but not sent to an unauthenticated peer.
    return { code, message: error.code === "unauthenticated" ? "authentication failed" : "cannot authenticate now" };
  }
}

function registerAgent(
  incoming: IncomingStream,
  { agentID, identifiers }: AgentIdentity,
  admission: Admission | undefined,
  deps: AgentStreamDeps,
  options: AgentStreamOptions,
): void {
  const { metrics, backends, log, clock } = deps;
  const { peer } = incoming;
  const identity = admission?.identity;
  const shared = sharedCapabilities(options.capabilities, incoming.metadata(MetadataKey.capabilities)[0]);
  const headers = {
    [MetadataKey.serverID]: options.serverID,
    [MetadataKey.serverCount]: String(options.serverCount()),
    ...(options.capabilities.size === 0
      ? {}
      : { [MetadataKey.capabilities]: formatCapabilities(options.capabilities) }),
  };
  let blocked = 0;
  const mux: LinkMux = new LinkMux(
    (handlers) => incoming.accept(headers, handlers),
    {
      side: "server",
      clock,
      budget: deps.budget,
      capabilities: shared,
      handlers: {
        onDialRequest: (request) => acceptors.accept(request),
        onDialCancelled: (random) => acceptors.cancel(random),
        onUnmatchedDialResponse: () => metrics.dialFailed("unrecognized_response"),
        onDrain: () => {
          backend.isDraining = true;
          log.info("agent drains", { agentID, identity, peer: peer.address });
        },
        onPacket: (direction, type) => metrics.packet(direction === "in" ? "from_agent" : "to_agent", type),
        onBlocked: (channels) => {
          metrics.fullReceiveChannels("Connect", channels - blocked);
          blocked = channels;
        },
        onSlowConsumerClosed: () => {
          metrics.slowConsumerClosed();
          log.info("a client or endpoint that reads too slowly held too many bytes; its connection is closed", {
            agentID,
            identity,
            peer: peer.address,
          });
        },
        onEnd: () => mux.end(),
        onClosed: (fault) => {
          if (fault !== undefined) metrics.streamError("from_agent", fault.code, "Unknown");
          if (fault !== undefined && mux.queuedBytes > 0) metrics.streamError("to_agent", fault.code, "DATA");
          backends.remove(backend);
          admission?.release();
          metrics.grpcConnections("Connect", -1);
          acceptors.linkLost();
          session?.close();
          log.info("agent disconnected", { agentID, identity, peer: peer.address, reason: fault?.message });
        },
      },
    },
    options.mux,
  );
  const backend = new Backend({
    agentID,
    identifiers,
    mux,
    pulse: incoming.pulse,
    dialTimeoutMs: dialTimeoutOf(incoming),
    // An agent of this product keeps its stream at GOAWAY. Konnectivity's drops all its connections (docs/spec/tunnel.md#11).
    ...(shared.size === 0 ? {} : { announceLeaving: () => incoming.announceLeaving() }),
    admission,
  });
  if (admission !== undefined) followAdmission(admission, backend, { peer: peer.address, deps });
  const session = deps.reverse?.session({ agentID, peer, identity });
  const acceptors = reverseAcceptors(mux, session, deps, options);
  metrics.grpcConnections("Connect", 1);
  backends.add(backend);
  if (backends.streamsOf(backend.key) > 1) clock.after(KEPT_MS, () => backends.probeEarlier(backend), { unref: true });
  log.info("agent connected", {
    ...{ agentID, identity, peer: peer.address, capabilities: formatCapabilities(shared) },
  });
}

/** Applies to a stream what the rules say of it, now and when they or Nodes change. */
function followAdmission(
  admission: Admission,
  backend: Backend,
  { peer, deps }: { readonly peer: string; readonly deps: AgentStreamDeps },
): void {
  const { agentID, identity, mux } = backend;
  const { backends, log, metrics, refusals } = deps;
  const logWithheld = ({ withheld }: Pick<Admission, "withheld">): void => {
    if (withheld.size === 0) return;
    refusals.warn("an agent does not get addresses that it claims: they are not, or not yet, its Node's", {
      ...{ agentID, identity, peer, addresses: [...withheld].slice(0, MAX_LOGGED_ADDRESSES).join(",") },
    });
  };
  logWithheld(admission);
  admission.observe({
    onRevoked: (refusal) => {
      metrics.agentRefused(refusal.reason);
      log.warn("the rules of --agent-identity admit an agent no longer", {
        ...{ agentID, identity, peer, reason: refusal.message },
      });
      mux.destroy(faultOf(refusal));
    },
    onGranted: (granted) => {
      backends.setHosts(backend, granted.hosts);
      // A kubelet can change its Node many times a second.
      refusals.info("an agent has other hosts than before, by the addresses of its Node", {
        ...{ agentID, identity, peer, hosts: [...granted.hosts].slice(0, MAX_LOGGED_ADDRESSES).join(",") },
      });
      logWithheld(granted);
    },
  });
}

/** The server's side of the reverse direction (docs/spec/tunnel.md#9.4). */
function reverseAcceptors(
  mux: LinkMux,
  session: ReverseSession | undefined,
  { clock, metrics, onBug }: AgentStreamDeps,
  options: AgentStreamOptions,
): DialAcceptor {
  return new DialAcceptor(mux, {
    clock,
    closeLingerMs: options.closeLingerMs,
    maxPendingDials: options.mux.maxPendingDials,
    decide: (request) => {
      if (session === undefined || !mux.reverse) {
        metrics.reverseDial("disabled");
        return { kind: "refuse", error: "node to control plane traffic is disabled" };
      }
      return session.decide(request, mux);
    },
    failureText: (error) => session?.failureText(error),
    onOpened: () => metrics.reverseConnections(1),
    onClosed: () => metrics.reverseConnections(-1),
    onBug,
  });
}
