import type { HeaderField } from "#wire/http-connect";

const CRLF = Buffer.from("\r\n", "latin1");

/** Payload as one chunk (RFC 9112 section 7.1): its pieces in order. Empty for no bytes: an empty chunk would end the body. */
export function encodeChunk(payload: Uint8Array): Uint8Array[] {
  if (payload.length === 0) return [];
  return [Buffer.from(`${payload.length.toString(16)}\r\n`, "latin1"), payload, CRLF];
}

/** The end of a chunked body, with its trailer. */
export function encodeLastChunk(trailers: readonly HeaderField[]): Uint8Array {
  const lines = trailers.map(({ name, value }) => `${name}: ${value}\r\n`);
  return Buffer.from(`0\r\n${lines.join("")}\r\n`, "latin1");
}
