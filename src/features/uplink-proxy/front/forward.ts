import type { ByteStream } from "#base/byte-stream";
import type { ListenerSettings } from "#base/uplink-model";
import type { RequestHead } from "#wire/http-connect";
import { requestFraming } from "#wire/http1";
import type { Destination } from "../policy/index.ts";
import { AnswerRelay } from "./answer-relay.ts";
import { badGatewayReply, failureReply, overloadReply, refusalReply } from "./dispatch.ts";
import { EarlyPayload } from "./early-payload.ts";
import { Exchange, type ExchangeEnd } from "./exchange.ts";
import { encodeRequestHead, staysOpen, wantedUpgrade } from "./hop.ts";
import type { HttpConnectionDeps } from "./http-connection-deps.ts";
import type { Reply } from "./replies.ts";

/** A request with an absolute target, and the bytes that came after its head. */
export interface ForwardRequest {
  readonly head: RequestHead;
  readonly rest: Uint8Array;
  readonly destination: Destination;
  /** The path with its query. */
  readonly path: string;
}

/** The instruction for the caller about the client's connection. */
export type Forwarded =
  /** The next request may be read; `rest`: the received bytes of it. */
  | { readonly kind: "next"; readonly rest: Uint8Array }
  /** The last answer is sent. */
  | { readonly kind: "close" }
  | { readonly kind: "reply"; readonly reply: Reply; readonly rest: Uint8Array }
  /** The client's connection is closed, or will be closed soon. */
  | { readonly kind: "closed" };

/**
 * Forwards one plain request over an uplink (docs/spec/uplink-proxy.md#9.3, #13) and resolves when its answer is sent. Each request has a
 * connection of its own to its origin, which gets only this request; the client's connection continues with the next request.
 */
export async function forward(
  { head, rest, destination, path }: ForwardRequest,
  client: ByteStream,
  listener: ListenerSettings,
  { tunnelService, clock, isDraining }: HttpConnectionDeps,
): Promise<Forwarded> {
  const framing = requestFraming(head);
  if (framing.kind === "malformed") return malformed(framing.what);
  const stays = staysOpen(head);
  const answer = new AnswerRelay({
    method: head.method,
    version: head.version,
    wantsUpgrade: wantedUpgrade(head) !== undefined,
    // The rest of an incomplete request would be read as the next request.
    mayStayOpen: () => stays && exchange.isRequestWhole && !isDraining(),
  });
  const exchange = new Exchange(client, framing, answer);
  const first = exchange.takeFirst(rest);
  if (!exchange.destroyed) {
    const early = new EarlyPayload(
      exchange,
      Buffer.concat([encodeRequestHead(head, { destination, path }, framing), first]),
    );
    const result = await tunnelService.open({
      client: exchange,
      destination,
      listener,
      early,
      ...(framing.kind === "none" && ["GET", "HEAD"].includes(head.method) ? { replay: "always" as const } : {}),
      startedAt: clock.monotonic(),
      onConnected: () => undefined,
      onClosed: () => undefined,
    });
    if (result.kind === "opened") exchange.carriedByTunnel((reason) => result.tunnel.close(reason));
    else {
      early.release();
      if (result.kind !== "gone") {
        const reply = result.kind === "overload" ? overloadReply() : failureReply(result.error, listener.role);
        return {
          kind: "reply",
          reply: { ...reply, close: !stays || !exchange.isRequestWhole },
          rest: exchange.release(),
        };
      }
    }
  }
  return forwarded(await exchange.ended, { closes: answer.closes, stays: stays && exchange.isRequestWhole });
}

function forwarded(
  end: ExchangeEnd,
  { closes, stays }: { readonly closes: boolean; readonly stays: boolean },
): Forwarded {
  switch (end.kind) {
    case "over":
      return closes ? { kind: "close" } : { kind: "next", rest: end.rest };
    case "failed":
      return { kind: "reply", reply: badGatewayReply(end.why, { close: !stays }), rest: end.rest };
    case "bad-request":
      return malformed(end.why);
    case "closed":
      return end;
  }
}

function malformed(what: string): Forwarded {
  const reply = refusalReply({ kind: "refused", status: 400, body: `malformed request: ${what}` });
  return { kind: "reply", reply, rest: new Uint8Array(0) };
}
