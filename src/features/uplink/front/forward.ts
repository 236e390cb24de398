import type { ByteStream } from "#base/byte-stream";
import type { RequestHead } from "#wire/http-connect";
import type { ListenerSettings } from "../model/index.ts";
import type { Destination } from "../policy/index.ts";
import { failureReply, overloadReply } from "./dispatch.ts";
import { EarlyBytes } from "./early-bytes.ts";
import type { HttpConnectionDeps } from "./http-connection.ts";
import { lastWords } from "./last-words.ts";
import { encode } from "./replies.ts";

/** Fields that concern one hop alone (RFC 9110 section 7.6.1); `Proxy-*` goes as well. */
const HOP_BY_HOP: ReadonlySet<string> = new Set(["connection", "keep-alive", "te", "upgrade"]);

/** A request with an absolute target, and what came behind its head. */
export interface ForwardRequest {
  readonly head: RequestHead;
  readonly rest: Uint8Array;
  readonly destination: Destination;
  /** With its query. */
  readonly path: string;
}

/**
 * Forwards one plain request over an uplink (spec uplink-proxy 13): its head with `Connection: close`, its body and the answer as they
 * come. The connection ends with the answer, so no byte of a next request can be taken for a part of this one.
 */
export async function forward(
  request: ForwardRequest,
  client: ByteStream,
  listener: ListenerSettings,
  { carrier, clock }: HttpConnectionDeps,
): Promise<void> {
  const early = new EarlyBytes(client, Buffer.concat([encodeHead(request), request.rest]));
  const result = await carrier.carry({
    client,
    destination: request.destination,
    listener,
    early,
    isIdempotent: !request.head.hasBody && ["GET", "HEAD"].includes(request.head.method),
    startedAt: clock.monotonic(),
    onConnected: () => undefined,
    onClosed: () => undefined,
  });
  if (result.kind === "carried") return;
  early.release();
  if (result.kind === "gone") {
    client.destroy();
    return;
  }
  const reply = result.kind === "overload" ? overloadReply() : failureReply(result.error, listener.role);
  lastWords(client, encode({ ...reply, close: true }), clock);
}

/** The head in origin form, without what is between the client and us. */
export function encodeHead({ head, destination, path }: Omit<ForwardRequest, "rest">): Uint8Array {
  const named = new Set(
    head.fields
      .filter(({ name }) => name.toLowerCase() === "connection")
      .flatMap(({ value }) => value.split(",").map((word) => word.trim().toLowerCase())),
  );
  const isKept = (name: string): boolean =>
    !HOP_BY_HOP.has(name) && !named.has(name) && !name.startsWith("proxy-") && name !== "host";
  const host = destination.port === 80 ? destination.text.replace(/:80$/, "") : destination.text;
  const fields = head.fields.filter(({ name }) => isKept(name.toLowerCase()));
  const lines = [
    `${head.method} ${path} HTTP/${head.version}`,
    `Host: ${host}`,
    ...fields.map(({ name, value }) => `${name}: ${value}`),
    "Connection: close",
  ];
  return Buffer.from(`${lines.join("\r\n")}\r\n\r\n`, "latin1");
}
