import type { ByteStream } from "#base/byte-stream";
import type { ListenerSettings } from "#base/uplink-model";
import { requestFraming } from "#wire/http1";
import {
  EarlyPayload,
  errorReply,
  type ForwardDeps,
  type Forwarded,
  type ForwardRequest,
  failureReply,
  overloadReply,
  type Reply,
  refusalReply,
  staysOpen,
} from "../front/index.ts";
import { AnswerRelay } from "./answer-relay.ts";
import { Exchange, type ExchangeEnd } from "./exchange.ts";
import { encodeRequestHead, wantedUpgrade } from "./hop.ts";

/**
 * Forwards one plain request over an uplink (docs/spec/uplink-proxy.md#9.3, #13) and resolves when its answer is sent. Each request has a
 * connection of its own to its origin, which gets only this request; the client's connection continues with the next request.
 */
export async function forward(
  { head, rest, destination, path }: ForwardRequest,
  client: ByteStream,
  listener: ListenerSettings,
  { tunnelService, clock, isDraining }: ForwardDeps,
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
      return { kind: "reply", reply: badGateway(end.why, { close: !stays }), rest: end.rest };
    case "bad-request":
      return malformed(end.why);
    case "closed":
      return end;
  }
}

/** The answer to a plain request whose origin sent no answer that can be relayed. */
function badGateway(why: string, options: { readonly close: boolean }): Reply {
  return errorReply(502, "bad-answer", `the answer of the origin cannot be relayed: ${why}`, options);
}

function malformed(what: string): Forwarded {
  const reply = refusalReply({ kind: "refused", status: 400, body: `malformed request: ${what}` });
  return { kind: "reply", reply, rest: new Uint8Array(0) };
}
