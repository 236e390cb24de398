/**
 * The first message of a TLS connection: its server name and offered protocols, for a proxy that passes the bytes on.
 * Pure: bytes in, result out. Source: RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3, RFC 7301 section 3.1.
 *
 * Owns: records, the ClientHello, SNI, ALPN, the alerts that refuse it. Does not know: sockets, keys, and what the client may reach.
 *
 * ```ts
 * const reader = new ClientHelloReader();
 * const progress = reader.push(chunk); // until it is not "need-more"
 * if (progress.kind === "hello") route(progress.hello.serverName);
 * ```
 */
export { encodeFatalAlert, type PlainAlert } from "./alert.ts";
export type { ClientHello } from "./client-hello.ts";
export { ClientHelloReader, type HelloProgress, MAX_HELLO_BYTES } from "./hello-reader.ts";
