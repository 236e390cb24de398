import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
} from "node:http2";
import { ExpectedError } from "#base/errors";
import { decodeGrpcMessage, frameMessage, GrpcDeframer, GrpcWireError } from "#wire/grpc";

/** Certificates of the connections to etcd, PEM. */
export interface EtcdTls {
  /** The authorities that may have signed etcd's certificate. Default: the authorities of Node.js. */
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

/** The largest answer, in bytes. A page has 500 keys, and etcd's values are at most 1.5 MiB unless its operator allows more. */
const MAX_ANSWER_BYTES = 1 << 30;

/**
 * - `transport`: no complete answer came; another endpoint may answer.
 * - `status`: etcd answered with the gRPC status {@link EndpointError.status}.
 */
export class EndpointError extends ExpectedError<"transport" | "status"> {
  override readonly name = "EndpointError";
  /** The gRPC status; 0 for `transport`. */
  readonly status: number;

  constructor(
    code: "transport" | "status",
    message: string,
    init: { readonly status?: number; readonly cause?: unknown } = {},
  ) {
    super(code, message, "cause" in init ? { cause: init.cause } : {});
    this.status = init.status ?? 0;
  }
}

/** One member of etcd: unary gRPC calls over one HTTP/2 connection, which is opened for the first call. */
export class EtcdEndpoint {
  readonly url: URL;
  readonly #tls: EtcdTls;
  #session: ClientHttp2Session | undefined;

  constructor(url: URL, tls: EtcdTls) {
    this.url = url;
    this.#tls = tls;
  }

  /**
   * Sends a message and resolves to the message of the answer. Rejects with {@link EndpointError}; with the signal's reason if that aborts.
   */
  call(
    path: string,
    message: Uint8Array,
    options: { readonly token: string | undefined; readonly signal: AbortSignal },
  ): Promise<Uint8Array> {
    const { token, signal } = options;
    return new Promise((resolve, reject) => {
      if (signal.aborted) {
        reject(signal.reason);
        return;
      }
      const stream = this.#connected().request({
        ":method": "POST",
        ":path": path,
        "content-type": "application/grpc",
        te: "trailers",
        ...(token === undefined ? {} : { token }),
      });
      const onAbort = (): void => {
        stream.close(constants.NGHTTP2_CANCEL);
        // A connection that does not answer is not used for the next call.
        this.close();
        reject(signal.reason);
      };
      const settle = (error: EndpointError | undefined, answer?: Uint8Array): void => {
        signal.removeEventListener("abort", onAbort);
        if (answer !== undefined) resolve(answer);
        else reject(error);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      collect(stream, this.url, settle);
      stream.end(frameMessage(message));
    });
  }

  /** Closes the connection; the next call opens another. */
  close(): void {
    this.#session?.destroy();
    this.#session = undefined;
  }

  /** The connection; if it fails, its streams fail with the same error. */
  #connected(): ClientHttp2Session {
    if (this.#session === undefined || this.#session.closed || this.#session.destroyed) {
      this.#session = connect(this.url, { ...this.#tls });
      // Without a listener, an error of an idle connection would end the program.
      this.#session.on("error", () => undefined);
    }
    return this.#session;
  }
}

/** Reads the answer of one call, and reports it once. */
function collect(
  stream: ClientHttp2Stream,
  url: URL,
  settle: (error: EndpointError | undefined, answer?: Uint8Array) => void,
): void {
  let answer: Uint8Array | undefined;
  let status: IncomingHttpHeaders | undefined;
  const deframer = new GrpcDeframer({
    maxBytes: MAX_ANSWER_BYTES,
    onMessage: (pieces) => {
      answer = Buffer.concat(pieces);
    },
  });
  const fail = (why: string, cause?: unknown): void => {
    stream.close(constants.NGHTTP2_CANCEL);
    settle(transport(url, why, cause));
  };
  stream.on("response", (headers) => {
    if (headers[":status"] !== 200)
      fail(`it answered with HTTP status ${headers[":status"]}; check that this is an etcd with API v3`);
    // An answer without a message has its status in the only header block.
    if (headers["grpc-status"] !== undefined) status = headers;
  });
  stream.on("trailers", (headers) => {
    status = headers;
  });
  stream.on("data", (chunk: Uint8Array) => {
    try {
      deframer.push(chunk);
    } catch (error) {
      if (!(error instanceof GrpcWireError)) throw error;
      fail(error.message, error);
    }
  });
  stream.on("error", (error) => fail(error.message, error));
  stream.on("close", () => {
    const code = Number(status?.["grpc-status"] ?? Number.NaN);
    if (!Number.isInteger(code)) fail("its answer is incomplete");
    else if (code !== 0) {
      const message = decodeGrpcMessage(String(status?.["grpc-message"] ?? `status ${code}`));
      settle(new EndpointError("status", `etcd ${url.origin}: ${message}`, { status: code }));
    } else if (answer === undefined || !deframer.isIdle) fail("its answer is empty");
    else settle(undefined, answer);
  });
}

function transport(url: URL, why: string, cause?: unknown): EndpointError {
  return new EndpointError("transport", `etcd ${url.origin}: ${why}`, cause === undefined ? {} : { cause });
}
