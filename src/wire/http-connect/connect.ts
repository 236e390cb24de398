import type { RequestHead } from "./head.ts";
import { type HeadLimits, RequestHeadReader } from "./head-reader.ts";
import { type HostPort, parseHostPort } from "./host-port.ts";
import { type Refusal, refusal } from "./refusal.ts";

/** A valid CONNECT request. */
export interface ConnectRequest {
  readonly kind: "connect";
  /** The request-target; never the Host field, which often names the proxy. */
  readonly target: HostPort;
  readonly version: "1.0" | "1.1";
}

/** The result after the bytes received so far. */
export type ConnectProgress =
  | { readonly kind: "need-more" }
  | (ConnectRequest & {
      /** Bytes after the head, such as a TLS ClientHello: the first payload of the tunnel. */
      readonly rest: Uint8Array;
    })
  | Refusal;

/** Reads the head of the one CONNECT request of a connection (docs/spec/tunnel.md#6). A wrapper of {@link RequestHeadReader}. */
export class ConnectReader {
  readonly #head: RequestHeadReader;

  constructor(limits: HeadLimits = {}) {
    this.#head = new RequestHeadReader(limits);
  }

  /** Takes the next bytes. Throws an `Error` (a bug) after a final result. */
  push(chunk: Uint8Array): ConnectProgress {
    const progress = this.#head.push(chunk);
    if (progress.kind !== "head") return progress;
    const request = connectRequest(progress.head);
    return request.kind === "connect" ? { ...request, rest: progress.rest } : request;
  }
}

/** The CONNECT request of a head; 405 for other methods, 400 for a target that is not `host:port` or a request with a body. */
export function connectRequest(head: RequestHead): ConnectRequest | Refusal {
  if (head.method !== "CONNECT") return refusal(405, "this proxy only supports CONNECT passthrough");
  const target = parseHostPort(head.target);
  if (target === undefined) {
    return refusal(400, "malformed CONNECT target: it must be HOST:PORT or [IPv6]:PORT with a port from 1 to 65535");
  }
  if (head.hasBody) return refusal(400, "malformed request: CONNECT has no body");
  return { kind: "connect", target, version: head.version };
}
