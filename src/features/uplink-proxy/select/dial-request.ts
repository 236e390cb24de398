import type { AbortSignalLike } from "#base/async";
import type { Clock } from "#base/clock";
import type { IpAddress } from "#base/ip";
import type { ClientKind, Evidence, SelectionSettings, Snapshot, Uplink } from "#base/uplink-model";
import type { UplinkDns } from "../dns/index.ts";
import type { Destination, Judgement } from "../policy/index.ts";
import type { AttemptFailure } from "./errors.ts";
import type { Closable, Connect } from "./happy-eyeballs.ts";
import type { Penalties, Trial } from "./penalties.ts";
import type { Rotation } from "./rotation.ts";
import type { SegmentSizes } from "./segment-sizes.ts";

/** One request for a connection. */
export interface DialRequest {
  readonly destination: Destination;
  /** The snapshot that is used for the whole request. */
  readonly snapshot: Snapshot;
  /** Judges all addresses that a name resolved to, before any is dialled. */
  readonly judge: (addresses: readonly IpAddress[]) => Judgement;
  /** Default: the host. */
  readonly clientKind?: ClientKind;
  /** Uplinks that are not tried: uplinks that blackholed an earlier attempt. */
  readonly except?: ReadonlySet<string>;
  /** Deadline of the whole request, monotonic milliseconds; default: `requestTimeoutMs` from now. */
  readonly deadlineAt?: number;
  /** Aborts when the client has left: all attempts end, and no attempt counts as a failure. */
  readonly signal: AbortSignalLike;
}

/** Dependencies of a dialler. */
export interface DiallerDeps<C extends Closable> {
  readonly clock: Clock;
  readonly connect: Connect<C>;
  readonly dns: Pick<UplinkDns, "resolve" | "resolveNear" | "cached" | "hosts">;
  readonly penalties: Penalties;
  readonly rotation: Rotation;
  readonly evidence: Evidence;
  readonly settings: () => SelectionSettings;
  /** The round-trip time that the kernel has measured for a connection, in milliseconds; `undefined` if it has none. */
  readonly rttMs: (connection: C) => number | undefined;
  readonly segments: SegmentSizes;
  /** Returns true if this host has the address right now. */
  readonly hasAddress: (address: IpAddress) => boolean;
  /** An attempt failed after its request had ended, so that no {@link DialResult} has it. */
  readonly failedLate: (target: string, failure: AttemptFailure) => void;
  /** Reads the state of the addresses again. */
  readonly refresh: () => void;
}

/** An established connection. */
export interface DialResult<C extends Closable> {
  readonly connection: C;
  /** The uplink; absent if the connection is direct, through the main table. */
  readonly uplink?: Uplink | undefined;
  /** The source that it was bound to. */
  readonly source?: IpAddress | undefined;
  /** The address that was dialled. */
  readonly address: IpAddress;
  /** A direct connection to a name that these DNS servers led to the bypass set: an uplink's name, or `system`. */
  readonly nameFrom?: string | undefined;
  /** Set if the connection is a trial of the uplink. The caller ends it after the first byte, or when the connection is closed. */
  readonly trial?: Trial | undefined;
  /** The largest segment of the connection, in bytes, if it was lowered for the uplink. */
  readonly maxSegmentBytes?: number | undefined;
  /** Earlier failed attempts, in their order. */
  readonly failures: readonly AttemptFailure[];
}
