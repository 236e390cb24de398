import type { ByteStream } from "#base/byte-stream";
import type { Clock } from "#base/clock";
import type { ListenerSettings } from "#base/uplink-model";
import type { RequestHead } from "#wire/http-connect";
import type { Destination } from "../policy/index.ts";
import type { Reply } from "./replies.ts";
import type { TunnelService } from "./tunnel-service.ts";

/** The destination of a request with an absolute `http://` target, and its path with the query. */
export interface PlainTarget {
  readonly destination: Destination;
  readonly path: string;
}

/** A request with an absolute target, and the bytes that came after its head. */
export interface ForwardRequest extends PlainTarget {
  readonly head: RequestHead;
  readonly rest: Uint8Array;
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

/** The part of a connection's dependencies that forwarding needs. */
export interface ForwardDeps {
  readonly clock: Clock;
  readonly tunnelService: TunnelService;
  readonly isDraining: () => boolean;
}

/** The server of plain requests (docs/spec/uplink-proxy.md#13). Without one, all of them are refused. */
export interface PlainHttp {
  /** Pure: `undefined` if the target is no absolute `http://` target with a host. */
  readonly targetOf: (target: string) => PlainTarget | undefined;
  /** Resolves when the answer is sent. */
  readonly forward: (
    request: ForwardRequest,
    client: ByteStream,
    listener: ListenerSettings,
    deps: ForwardDeps,
  ) => Promise<Forwarded>;
}
