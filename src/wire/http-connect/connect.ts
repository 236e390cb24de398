import type { RequestHead } from "./head.ts";
import { type HeadLimits, RequestHeadReader } from "./head-reader.ts";
import { type HostPort, parseHostPort } from "./host-port.ts";
import { type Refusal, refusal } from "./refusal.ts";

/** Somebody asks for a tunnel. */
export interface ConnectRequest {
  readonly kind: "connect";
  /** From the request-target; never from Host, which names the proxy as often as the destination. */
  readonly target: HostPort;
  readonly version: "1.0" | "1.1";
}

/** What is known after the bytes that have come so far. */
export type ConnectProgress =
  | { readonly kind: "need-more" }
  | (ConnectRequest & {
      /** What the client sent right behind the head, such as a TLS ClientHello: payload of the tunnel, to be sent first. */
      readonly rest: Uint8Array;
    })
  | Refusal;

/** Reads the head of the one CONNECT request of a connection (docs/spec/tunnel.md#6). The face of {@link RequestHeadReader}. */
export class ConnectReader {
  readonly #head: RequestHeadReader;

  constructor(limits: HeadLimits = {}) {
    this.#head = new RequestHeadReader(limits);
  }

  /** Takes the next bytes. After a verdict it must not be called again: that is a bug and throws an `Error`. */
  push(chunk: Uint8Array): ConnectProgress {
    const progress = this.#head.push(chunk);
    if (progress.kind !== "head") return progress;
    const request = connectRequest(progress.head);
    return request.kind === "connect" ? { ...request, rest: progress.rest } : request;
  }
}

/** The tunnel that a head asks for. 405 for other methods, 400 for a target that is no `host:port` or a request with a body. */
export function connectRequest(head: RequestHead): ConnectRequest | Refusal {
  if (head.method !== "CONNECT") return refusal(405, "this proxy only supports CONNECT passthrough");
  const target = parseHostPort(head.target);
  if (target === undefined) {
    return refusal(400, "malformed CONNECT target: it must be HOST:PORT or [IPv6]:PORT with a port from 1 to 65535");
  }
  if (head.hasBody) return refusal(400, "malformed request: CONNECT has no body");
  return { kind: "connect", target, version: head.version };
}
