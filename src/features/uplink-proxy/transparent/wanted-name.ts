import { fieldValues, parseHostPort, RequestHeadReader } from "#wire/http-connect";
import { ClientHelloReader } from "#wire/tls-hello";

/** Bytes that are examined. */
const MAX_BYTES = 16_384;

/**
 * The name of the server that a client speaks to, from the first bytes that it sends: the server name of a ClientHello, or the Host of an
 * HTTP request. `pending` while more bytes are needed; `undefined` if there is none.
 */
export function wantedName(chunks: readonly Uint8Array[]): string | "pending" | undefined {
  const [first = new Uint8Array(0)] = chunks;
  if (first.length === 0) return "pending";
  // RFC 8446 section 5.1: a handshake record; no method of HTTP begins with that.
  const found = first[0] === 22 ? serverName(chunks) : hostField(chunks);
  if (found === undefined || found === "pending") return found;
  return parseHostPort(`${found}:1`)?.host.toLowerCase().replace(/\.$/, "");
}

function serverName(chunks: readonly Uint8Array[]): string | undefined {
  const reader = new ClientHelloReader({ maxBytes: MAX_BYTES });
  for (const chunk of chunks) {
    const progress = reader.push(chunk);
    if (progress.kind === "hello") return progress.hello.serverName;
    if (progress.kind !== "need-more") return undefined;
  }
  return "pending";
}

function hostField(chunks: readonly Uint8Array[]): string | undefined {
  const reader = new RequestHeadReader({ maxBytes: MAX_BYTES });
  for (const chunk of chunks) {
    const progress = reader.push(chunk);
    if (progress.kind === "head") return fieldValues(progress.head, "host")[0]?.replace(/:\d+$/, "");
    if (progress.kind !== "need-more") return undefined;
  }
  return "pending";
}
