import type { AbortSignalLike } from "#base/async";
import type { ByteStream } from "#base/byte-stream";
import type { Clock } from "#base/clock";
import type { ClientKind, Evidence, ListenerSettings, Settings, SnapshotSource } from "#base/uplink-model";
import { type Destination, judge } from "../policy/index.ts";
import type { RelayTimer, ReplayRule } from "../relay/index.ts";
import type { Dialler, DialRequest, Penalties, Rotation, SegmentSizes } from "../select/index.ts";
import type { LogLines, Recorder, Traffic } from "../stats/index.ts";
import type { EarlyPayload } from "./early-payload.ts";
import type { TunnelLimiter } from "./tunnel-limiter.ts";

/** Dependencies of tunnels. */
export interface TunnelDeps {
  readonly clock: Clock;
  readonly settings: () => Settings;
  readonly snapshots: Pick<SnapshotSource, "current">;
  readonly dialler: Pick<Dialler<ByteStream>, "dial" | "hasAlternative">;
  readonly penalties: Penalties;
  readonly rotation: Rotation;
  readonly segments: SegmentSizes;
  readonly evidence: Evidence;
  readonly limiter: TunnelLimiter;
  readonly timer: RelayTimer;
  readonly traffic: Traffic;
  readonly record: Recorder;
  readonly lines: LogLines;
  /** Called with an error that is a bug. */
  readonly onBug: (error: unknown) => void;
}

/** The request of a client for a tunnel. */
export interface TunnelRequest {
  readonly client: ByteStream;
  readonly destination: Destination;
  readonly listener: ListenerSettings;
  readonly early: EarlyPayload;
  /** The rule for bytes of the client that may be sent once more over another uplink. Default: a ClientHello. */
  readonly replay?: ReplayRule;
  /** Monotonic milliseconds. */
  readonly startedAt: number;
  /** The destination is connected: writes the first bytes for the client. */
  readonly onConnected: () => void;
  /** The tunnel has ended. */
  readonly onClosed: () => void;
}

/** The dial of a request, with the present settings and uplinks. */
export function dialRequestFor(
  { destination, listener }: TunnelRequest,
  signal: AbortSignalLike,
  { settings, snapshots }: Pick<TunnelDeps, "settings" | "snapshots">,
): DialRequest {
  const input = { settings: settings(), snapshot: snapshots.current };
  return {
    destination,
    snapshot: input.snapshot,
    judge: (addresses) => judge(listener, destination.port, addresses, input),
    clientKind: clientKindOf(listener),
    signal,
  };
}

/** The kind of client of a listener, for evidence. */
export function clientKindOf({ role }: ListenerSettings): ClientKind {
  return role === "pod" ? "pod" : "host";
}
