import type { AbortLikeOptions } from "#base/async";
import type { ByteStream } from "#base/byte-stream";
import type { TcpStreams } from "#kernel/reactor";
import type { Pair } from "./happy-eyeballs.ts";

/** Options for connections to destinations. */
export interface ConnectOptions {
  /** SO_MARK, so that rules of transparent mode let them pass. Needs CAP_NET_ADMIN. */
  readonly mark?: number | undefined;
  /** The implementation of connections. */
  readonly streams: Pick<TcpStreams, "connect">;
  /** The maximum number of bytes of one read. */
  readonly readBytes?: number | undefined;
  /** The largest segment of the connection, in bytes. Default: what the link allows. */
  readonly maxSegmentBytes?: number | undefined;
}

/**
 * Connects to an address and resolves with the paused stream. Rejects with the system's error, or with the signal's reason when it
 * aborts first; the connection is closed then.
 */
export function connectUpstream(
  { address, source }: Pair,
  port: number,
  options: AbortLikeOptions & ConnectOptions,
): Promise<ByteStream> {
  const { signal, streams, mark, readBytes, maxSegmentBytes } = options;
  return streams.connect({ address, port }, { signal, mark, readBytes, source, maxSegmentBytes });
}
