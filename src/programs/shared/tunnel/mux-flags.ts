import { choiceFlag, durationFlag, type FlagValues, integerFlag } from "#base/config";
import { MUX_DEFAULTS, type MuxOptions } from "#features/tunnel";

const MIB = 1024 * 1024;
const many = { min: 1, max: 10_000_000 };

/** Flags for limits of both programs (docs/spec/tunnel.md#8). */
export const muxFlags = {
  connBufferBytes: integerFlag(
    "conn-buffer-bytes",
    MUX_DEFAULTS.connBufferBytes,
    "bytes of one connection that may be queued before reading from its sender pauses; the hard limit is twice this",
    { min: 64 * 1024, max: 1024 * MIB },
  ),
  slowConsumerGrace: durationFlag(
    "slow-consumer-grace",
    "10s",
    "how long one slow reader may stop a link whose peer has no flow control",
  ),
  slowConsumerPolicy: choiceFlag(
    "slow-consumer-policy",
    ["close", "block"],
    MUX_DEFAULTS.slowConsumerPolicy,
    "after the grace: close only the slow connection, or wait without a limit, as Konnectivity does",
  ),
  maxBufferedBytes: integerFlag(
    "max-buffered-bytes",
    512 * MIB,
    "bytes that all connections together may queue; above this limit new dials fail and reading pauses",
    { min: MIB, max: 1024 * 1024 * MIB },
  ),
  maxConnections: integerFlag(
    "max-connections",
    MUX_DEFAULTS.maxConnections,
    "maximum of open connections of one link",
    many,
  ),
  maxPendingDials: integerFlag(
    "max-pending-dials",
    MUX_DEFAULTS.maxPendingDials,
    "maximum of pending dials of one link",
    many,
  ),
  maxRecvMessageSize: integerFlag("max-recv-message-size", 4 * MIB, "the largest message that is accepted, bytes", {
    min: 64 * 1024,
    max: 1024 * MIB,
  }),
  halfCloseTimeout: durationFlag(
    "half-close-timeout",
    "30s",
    "after a client has ended its sending: how long its connection stays open while the endpoint sends nothing; applies if the peer has no half-close, and to clients over TCP and TLS, where a half-close and a close look the same",
  ),
  closeLinger: durationFlag(
    "close-linger",
    "10s",
    "how long an endpoint may take none of the remaining bytes of a connection that its client has closed",
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
