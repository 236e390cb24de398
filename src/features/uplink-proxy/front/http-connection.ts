import type { ByteStream } from "#base/byte-stream";
import type { Entry } from "#base/collections";
import type { ListenerSettings } from "#base/uplink-model";
import { type RequestHead, RequestHeadReader } from "#wire/http-connect";
import type { Destination } from "../policy/index.ts";
import { clientName } from "./client-name.ts";
import { closeAfterReply } from "./close-after-reply.ts";
import { dispatch, failureReply, overloadReply, refusalReply } from "./dispatch.ts";
import { EarlyPayload } from "./early-payload.ts";
import type { HttpConnectionDeps } from "./http-connection-deps.ts";
import type { Forwarded } from "./plain-http.ts";
import { encode, errorReply, type Reply, TUNNEL_OPEN } from "./replies.ts";

const ONE_REQUEST = { kind: "request", count: 1 } as const;
const NOTHING: Uint8Array = new Uint8Array(0);
/** Copies the bytes, because the next read overwrites the buffer. */
function copyOf(bytes: Uint8Array): Uint8Array {
  return bytes.length === 0 ? NOTHING : Uint8Array.prototype.slice.call(bytes);
}

const JSON_TYPE = "application/json";
const METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8";

/** One client of a listener, request by request, until a tunnel takes its socket or it ends (docs/spec/uplink-proxy.md#5, #9.3). */
export class HttpConnection {
  readonly #socket: ByteStream;
  readonly #listener: ListenerSettings;
  readonly #deps: HttpConnectionDeps;
  #reader: RequestHeadReader | undefined;
  #cancelTimer: (() => void) | undefined;
  /** True while the client is counted among the connections without a complete head. */
  #entry: Entry | undefined;
  #isBetweenRequests = false;
  /** True if the request that is being served has the method HEAD. */
  #isHead = false;

  constructor(socket: ByteStream, listener: ListenerSettings, deps: HttpConnectionDeps) {
    this.#socket = socket;
    this.#listener = listener;
    this.#deps = deps;
  }

  /** Awaits the first request; `first` was read before. */
  start(first: Uint8Array = NOTHING): void {
    const { limits } = this.#deps.settings();
    this.#await(limits.headerTimeoutMs, "reply");
    if (first.length > 0) this.#onData(first);
  }

  get isKept(): boolean {
    return this.#isBetweenRequests;
  }

  /** Closes the connection to make room for another client. */
  evict(): void {
    this.#stopAwaiting();
    this.#socket.destroy();
  }

  #await(timeoutMs: number, onTimeout: "reply" | "close"): void {
    const { limits } = this.#deps.settings();
    this.#reader = new RequestHeadReader({
      maxBytes: limits.headerBytes,
      maxFields: limits.headerFields,
      maxRequestLineBytes: limits.requestLineBytes,
    });
    this.#isBetweenRequests = onTimeout === "close";
    this.#isHead = false;
    this.#entry = this.#deps.pending.add(this);
    this.#socket.on("data", this.#onData);
    this.#socket.on("end", this.#onEnd);
    this.#socket.on("close", this.#onClose);
    this.#arm(timeoutMs, onTimeout);
    this.#socket.resume();
  }

  #arm(timeoutMs: number, onTimeout: "reply" | "close"): void {
    this.#cancelTimer?.();
    this.#cancelTimer = this.#deps.clock.after(timeoutMs, () => {
      this.#stopAwaiting();
      if (onTimeout === "close") this.#socket.destroy();
      else this.#reply(errorReply(408, "header-timeout", "the request took too long", { close: true }), NOTHING);
    });
  }

  #stopAwaiting(): void {
    this.#reader = undefined;
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#entry?.remove();
    this.#socket.pause();
    this.#socket.off("data", this.#onData);
    this.#socket.off("end", this.#onEnd);
    this.#socket.off("close", this.#onClose);
  }

  /** The bytes of a read, which the next read overwrites. */
  readonly #onData = (chunk: Uint8Array): void => this.#take(chunk, copyOf);

  /** `keep`: makes bytes last that follow the head. */
  #take(chunk: Uint8Array, keep: (rest: Uint8Array) => Uint8Array): void {
    const reader = this.#reader;
    if (reader === undefined) return;
    if (this.#isBetweenRequests) {
      this.#isBetweenRequests = false;
      this.#arm(this.#deps.settings().limits.headerTimeoutMs, "reply");
    }
    const progress = reader.push(chunk);
    if (progress.kind === "need-more") return;
    this.#stopAwaiting();
    if (progress.kind === "refused") this.#reply(refusalReply(progress), NOTHING);
    else this.#serve(progress.head, keep(progress.rest)).catch(this.#onBug);
  }

  /** The client has ended its sending, so no request can follow. */
  readonly #onEnd = (): void => {
    this.#stopAwaiting();
    this.#socket.destroy();
  };

  readonly #onClose = (): void => this.#stopAwaiting();

  readonly #onBug = (error: unknown): void => {
    this.#socket.destroy();
    this.#deps.onBug(error);
  };

  async #serve(head: RequestHead, rest: Uint8Array): Promise<void> {
    const { settings, tokens, isDraining, record, healthz, metrics } = this.#deps;
    const { metrics: hasMetrics, plainHttp: forwards } = settings();
    const plainHttp = forwards ? this.#deps.plainHttp : undefined;
    this.#isHead = head.method === "HEAD";
    if (head.method === "CONNECT") record(ONE_REQUEST);
    const action = dispatch(head, {
      listener: this.#listener,
      tokens: tokens(),
      isDraining: isDraining(),
      metrics: hasMetrics,
      plainTargetOf: plainHttp?.targetOf,
    });
    switch (action.kind) {
      case "reply":
        if (action.isWrongToken === true) this.#noteWrongToken();
        return head.method === "CONNECT" ? this.#refuse(action.reply, rest) : this.#reply(action.reply, rest);
      case "healthz": {
        const body = await healthz();
        return this.#reply({ status: 200, body, contentType: JSON_TYPE, close: action.close }, rest);
      }
      case "readyz": {
        const { isReady, text } = await this.#deps.readyz(action);
        const fields = { "Cache-Control": "no-store" };
        return this.#reply({ status: isReady ? 200 : 503, body: text, close: action.close, fields }, rest);
      }
      case "metrics": {
        const body = await metrics();
        return this.#reply({ status: 200, body, contentType: METRICS_TYPE, close: action.close }, rest);
      }
      case "connect":
        return await this.#connect(action.destination, rest);
      case "forward":
        return this.#forwarded(
          await plainHttp?.forward({ head, rest, ...action }, this.#socket, this.#listener, this.#deps),
        );
    }
  }

  #noteWrongToken(): void {
    this.#deps.record({ kind: "wrong-token" });
    this.#deps.lines.wrongToken(clientName(this.#socket));
  }

  #forwarded(result: Forwarded | undefined): void {
    if (result?.kind === "next") this.#goOn(result.rest);
    else if (result?.kind === "close") this.#whenRead(() => this.#replyAndClose(NOTHING));
    else if (result?.kind === "reply") this.#reply(result.reply, result.rest);
  }

  async #connect(destination: Destination, rest: Uint8Array): Promise<void> {
    const { tunnelService, clients, clock, record } = this.#deps;
    const isPod = this.#listener.role === "pod";
    const { remoteAddress } = this.#socket;
    if (isPod && !clients.tryTake(remoteAddress)) {
      record({ kind: "overload" });
      return this.#refuse(overloadReply(), rest);
    }
    const early = new EarlyPayload(this.#socket, rest);
    const leave = (): void => {
      if (isPod) clients.giveBack(remoteAddress);
    };
    const result = await tunnelService.open({
      client: this.#socket,
      destination,
      listener: this.#listener,
      early,
      startedAt: clock.monotonic(),
      onConnected: () => this.#socket.write(TUNNEL_OPEN),
      onClosed: leave,
    });
    if (result.kind === "opened") return;
    leave();
    const said = early.release();
    if (result.kind === "gone") this.#socket.destroy();
    else {
      const reply = result.kind === "overload" ? overloadReply() : failureReply(result.error, this.#listener.role);
      this.#refuse(reply, said[0] ?? NOTHING);
    }
  }

  /** Answers a CONNECT that opens no tunnel. Bytes behind the head were meant for the destination: they are never read as a request. */
  #refuse(reply: Reply, said: Uint8Array): void {
    this.#reply(said.length === 0 ? reply : { ...reply, close: true }, NOTHING);
  }

  #reply(reply: Reply, rest: Uint8Array): void {
    if (this.#socket.destroyed) return;
    if (reply.close) {
      this.#replyAndClose(encode(reply, { isHead: this.#isHead }));
      return;
    }
    this.#socket.write(encode(reply, { isHead: this.#isHead }));
    this.#goOn(rest);
  }

  /** A client that gets its last answer can be evicted like one without a complete head. */
  #replyAndClose(bytes: Uint8Array): void {
    if (this.#socket.destroyed) return;
    const entry = this.#deps.pending.add({ evict: () => this.#socket.destroy() });
    this.#socket.once("close", () => entry.remove());
    closeAfterReply(this.#socket, bytes, this.#deps.clock);
  }

  /** The next request, once the answer to this one is on its way. */
  #goOn(rest: Uint8Array): void {
    this.#whenRead(() => this.#next(rest));
  }

  #whenRead(next: () => void): void {
    // The next request waits for another tick, so that one client cannot block the others.
    if (this.#socket.writableNeedDrain) this.#awaitReading(next);
    else setImmediate(next);
  }

  /** Waits until the client reads its answers; limited in time, and counted like a client without a complete head. */
  #awaitReading(next: () => void): void {
    this.#entry = this.#deps.pending.add(this);
    this.#socket.on("close", this.#onClose);
    this.#cancelTimer = this.#deps.clock.after(this.#deps.settings().limits.keepAliveMs, () => this.evict());
    this.#socket.once("drain", () => {
      this.#stopAwaiting();
      next();
    });
  }

  #next(rest: Uint8Array): void {
    if (this.#socket.destroyed) return;
    this.#await(this.#deps.settings().limits.keepAliveMs, "close");
    // They are ours: to copy them for each of many requests would cost their square.
    if (rest.length > 0) this.#take(rest, (more) => more);
    // A client that has ended its sending may have sent further requests before.
    if (this.#reader !== undefined && this.#socket.readableEnded) {
      this.#stopAwaiting();
      this.#socket.end();
    }
  }
}
