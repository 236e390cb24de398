import type { Server } from "node:net";
import type { Clock } from "#base/clock";
import { TokenBucket } from "#base/rate-limit";
import { encodeGrpcMessage, GrpcCode } from "#wire/grpc";
import type { Header } from "#wire/http2";
import { acceptSession, acceptSessions, type SessionHandler } from "../http2/open-session.ts";
import { headerOf, type IncomingCall, type Session, type SessionSettings } from "../http2/session.ts";
import type { Transport, TransportPeer } from "../http2/transport.ts";
import type { BufferBudget } from "../mux/budget.ts";
import type { CertificateFault } from "../tls/client-fault.ts";
import type { Offenders } from "./offenders.ts";
import { CallPacketStream, type PacketStream, type PacketStreamHandlers, type StreamFault } from "./packet-stream.ts";
import { keepAlive, limitPings, type Pulse } from "./session.ts";

const CONTENT_TYPE = "application/grpc";

/** Calls of other methods that a connection may make at once, and then in a second. A balancer's probe makes one each few seconds. */
const OTHER_METHODS = { burst: 100, ratePerSecond: 10 };

/** A call of the served method, to be accepted or rejected. */
export interface IncomingStream {
  readonly peer: TransportPeer;
  readonly pulse: Pulse;
  /** All values of a metadata key, lower-case. */
  metadata(key: string): readonly string[];
  /** Sends response headers at once; packets flow from now on. */
  accept(headers: Readonly<Record<string, string>>, handlers: PacketStreamHandlers): PacketStream;
  /** Ends the call with a status. */
  reject(fault: StreamFault): void;
  /** Tells the peer by GOAWAY to look for another server. Its streams go on. */
  announceLeaving(): void;
  /** True once the call has ended. */
  readonly isGone: boolean;
  /** Calls `callback` once, when the call ends, whichever side ends it. */
  whenGone(callback: () => void): void;
}

export interface IncomingOptions {
  readonly settings: SessionSettings;
  /** The path of the served method; calls of other paths get UNIMPLEMENTED. */
  readonly path: string;
  readonly onStream: (stream: IncomingStream) => void;
  /** Called when a stream was accepted. */
  readonly onAccepted?: (peer: TransportPeer) => void;
  readonly maxMessageBytes: number;
  /** Counts the bytes of incomplete messages. */
  readonly budget?: BufferBudget;
  /** A PING is sent after this time without a byte of the peer, in milliseconds. 0: never. */
  readonly keepAliveMs: number;
  /** Shortest interval of a peer's PINGs, in milliseconds. A peer that sends PINGs more often loses its session. */
  readonly minPingIntervalMs: number;
  /** A connection is closed that has had no accepted stream for so long, in milliseconds. Absent: never. */
  readonly maxUnusedMs?: number;
  /** Clients of a TLS server are refused without a verified certificate. Default false. */
  readonly needsCertificate?: boolean;
  /** Called when a connection ends for a fault of its peer. */
  readonly onRefused?: (
    reason: CertificateFault | "alpn" | "http2" | "unused",
    client: { readonly peer: string; readonly text: string },
  ) => void;
  readonly clock: Clock;
  /** The peers that were sent away for a flood, also by this link. Default: nobody is refused for that. */
  readonly offenders?: Offenders | undefined;
}

/** Serves one bidirectional gRPC method on the connections of a TCP, UNIX or TLS server. */
export function serveStreams(server: Server, options: IncomingOptions): void {
  const { needsCertificate = false, onRefused } = options;
  acceptSessions(server, settingsOf(options), handlerOf(options), {
    needsCertificate,
    ...(onRefused === undefined ? {} : { onRefused }),
  });
}

/** The same on one connection. */
export function serveStreamsOn(transport: Transport, options: IncomingOptions): void {
  acceptSession(transport, settingsOf(options), handlerOf(options));
}

function settingsOf({ settings, offenders }: IncomingOptions): SessionSettings {
  return offenders === undefined ? settings : { ...settings, spentBy: (peer) => offenders.spentBy(peer) };
}

function handlerOf(options: IncomingOptions): SessionHandler {
  const { clock, offenders } = options;
  return (session) => {
    const pulse = keepAlive(session, { idleMs: options.keepAliveMs, clock });
    const whose = session.transport.peer();
    const peer = whose.address;
    session.whenFailed((text, isFlood) => {
      if (isFlood) offenders?.note(whose);
      options.onRefused?.("http2", { peer, text });
    });
    const restMs = offenders?.restOf(whose) ?? 0;
    if (restMs > 0) {
      session.expel(`this client was sent away for a flood; come back in ${Math.ceil(restMs / 1000)} s`);
      return (call) => call.reset();
    }
    const end = offenders?.begin(whose);
    if (end !== undefined) session.whenClosed(() => end(session.spent));
    limitPings(session, { minIntervalMs: options.minPingIntervalMs, clock });
    const { maxUnusedMs } = options;
    const onUnused = (text: string): void => options.onRefused?.("unused", { peer, text });
    const use = maxUnusedMs === undefined ? undefined : new SessionUse(session, { maxUnusedMs, clock, onUnused });
    const newBucket = (): TokenBucket => new TokenBucket({ ...OTHER_METHODS, clock });
    // Made when it is needed: few peers ever make such a call.
    let others: TokenBucket | undefined;
    const onOther = (): void => {
      others ??= offenders?.bucketOf(whose, newBucket) ?? newBucket();
      if (others.tryTake()) return;
      offenders?.note(whose);
      session.expel("too many calls of methods that are not served here");
    };
    return (call, headers) => serveCall(call, headers, { pulse, use, onOther }, options);
  };
}

interface SessionUseOptions {
  readonly maxUnusedMs: number;
  readonly clock: Clock;
  readonly onUnused: (text: string) => void;
}

/** Closes a session that has had no accepted stream for a time. */
class SessionUse {
  readonly #session: Session;
  readonly #options: SessionUseOptions;
  #streams = 0;
  #cancel: (() => void) | undefined;

  constructor(session: Session, options: SessionUseOptions) {
    this.#session = session;
    this.#options = options;
    session.whenClosed(() => this.#cancel?.());
    this.#watch();
  }

  accepted(call: IncomingCall): void {
    this.#streams += 1;
    this.#cancel?.();
    call.whenGone(() => {
      this.#streams -= 1;
      if (this.#streams === 0 && !this.#session.isDestroyed) this.#watch();
    });
  }

  #watch(): void {
    const { clock, maxUnusedMs, onUnused } = this.#options;
    const end = (): void => {
      onUnused(`no stream was accepted on the connection for ${maxUnusedMs / 1000} s`);
      this.#session.destroy();
    };
    this.#cancel = clock.after(maxUnusedMs, end, { unref: true });
  }
}

/** The objects that the streams of a session share. */
interface SharedParts {
  readonly pulse: Pulse;
  readonly use: SessionUse | undefined;
  /** A call is none of the served method. */
  readonly onOther: () => void;
}

function serveCall(
  call: IncomingCall,
  headers: readonly Header[],
  session: SharedParts,
  options: IncomingOptions,
): void {
  const path = headerOf(headers, ":path");
  const type = headerOf(headers, "content-type") ?? "";
  if (headerOf(headers, ":method") !== "POST" || !type.startsWith(CONTENT_TYPE)) {
    call.respond([[":status", "415"]], { isEnd: true });
    session.onOther();
  } else if (path !== options.path) {
    reject(call, { code: GrpcCode.unimplemented, message: `unknown method ${path}` });
    session.onOther();
  } else {
    options.onStream(incoming(call, headers, session, options));
  }
}

function incoming(
  call: IncomingCall,
  request: readonly Header[],
  { pulse, use }: SharedParts,
  options: IncomingOptions,
): IncomingStream {
  return {
    peer: call.session.transport.peer(),
    pulse,
    metadata: (key) => request.flatMap(([name, value]) => (name === key ? [value] : [])),
    announceLeaving: () => call.session.announceLeaving(),
    get isGone() {
      return call.isGone;
    },
    whenGone: (callback) => call.whenGone(() => callback()),
    reject: (fault) => reject(call, fault),
    accept(headers, handlers) {
      use?.accepted(call);
      options.onAccepted?.(call.session.transport.peer());
      call.respond([...RESPONSE, ...Object.entries(headers)], { isEnd: false });
      return new CallPacketStream(call, handlers, {
        maxMessageBytes: options.maxMessageBytes,
        lostCode: GrpcCode.cancelled,
        budget: options.budget,
        trailersOf,
      });
    },
  };
}

const RESPONSE: readonly Header[] = [
  [":status", "200"],
  ["content-type", CONTENT_TYPE],
];

function reject(call: IncomingCall, fault: StreamFault): void {
  call.respond([...RESPONSE, ...trailersOf(fault)], { isEnd: true });
}

function trailersOf(fault: StreamFault | undefined): readonly Header[] {
  const { code, message } = fault ?? { code: GrpcCode.ok, message: "" };
  const status = ["grpc-status", String(code)] as const;
  return message === "" ? [status] : [status, ["grpc-message", encodeGrpcMessage(message)]];
}
