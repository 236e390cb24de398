import { choiceFlag, durationFlag, type FlagValues, integerFlag } from "#base/config";
import { MUX_DEFAULTS, type MuxOptions } from "#features/tunnel";

const MIB = 1024 * 1024;
const many = { min: 1, max: 10_000_000 };

/** Limits that both programs have (docs/spec/tunnel.md#8). */
export const muxFlags = {
  connBufferBytes: integerFlag(
    "conn-buffer-bytes",
    MUX_DEFAULTS.connBufferBytes,
    "of one connection, reading pauses when so much waits to be sent; the hard limit is twice this",
    { min: 64 * 1024, max: 1024 * MIB },
  ),
  slowConsumerGrace: durationFlag(
    "slow-consumer-grace",
    "10s",
    "how long one slow reader may hold up a link whose peer has no flow control",
  ),
  slowConsumerPolicy: choiceFlag(
    "slow-consumer-policy",
    ["close", "block"],
    MUX_DEFAULTS.slowConsumerPolicy,
    "after that: close the one connection, or wait for as long as it takes, as upstream does",
  ),
  maxBufferedBytes: integerFlag(
    "max-buffered-bytes",
    512 * MIB,
    "of all connections together; above it new dials fail and reading pauses",
    { min: MIB, max: 1024 * 1024 * MIB },
  ),
  maxConnections: integerFlag("max-connections", MUX_DEFAULTS.maxConnections, "open connections of one link", many),
  maxPendingDials: integerFlag("max-pending-dials", MUX_DEFAULTS.maxPendingDials, "dials of one link that wait", many),
  maxRecvMessageSize: integerFlag("max-recv-message-size", 4 * MIB, "bytes of the largest message that is taken", {
    min: 64 * 1024,
    max: 1024 * MIB,
  }),
  halfCloseTimeout: durationFlag(
    "half-close-timeout",
    "30s",
    "how long a client that has ended its sending is served while the endpoint is silent, when the agent or server cannot be told so, or the client may have left: over TCP the two look alike",
  ),
  closeLinger: durationFlag(
    "close-linger",
    "10s",
    "how long an endpoint may take the rest of a connection that its dialler has closed",
  ),
};

/** The limits of one link. */
export function muxOptions(values: FlagValues<typeof muxFlags>): MuxOptions {
  return {
    connBufferBytes: values.connBufferBytes,
    maxConnections: values.maxConnections,
    maxPendingDials: values.maxPendingDials,
    slowConsumerGraceMs: values.slowConsumerGrace,
    slowConsumerPolicy: values.slowConsumerPolicy,
  };
}
