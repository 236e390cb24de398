import type { Snapshot } from "./uplink.ts";

/** The source of the proxy's snapshots. */
export interface SnapshotSource {
  readonly current: Snapshot;
  /** Calls the listener after each change of `current`, but not for the value at the time of this call. */
  onChange(listener: (snapshot: Snapshot) => void): Disposable;
  /** Reads the kernel again now; called after a bind failed because the host does not have the address (docs/spec/uplink-proxy.md#6.1). */
  refresh(): void;
}

/** The reason why an attempt over an uplink failed. `refused`: the destination answered. */
export type DialFailure = "timeout" | "refused" | "unreachable" | "address-gone" | "ports-exhausted" | "dns" | "other";

/** The kind of client whose connection failed. Failures of pods count less than those of the host, and never alone fail an uplink. */
export type ClientKind = "host" | "pod";

/** The circumstances of a failure. */
export interface FailureContext {
  readonly clientKind: ClientKind;
  /** The time without received bytes before the failure, in milliseconds. */
  readonly waitedMs: number;
}

/**
 * Evidence of real traffic (docs/spec/uplink-proxy.md#3.3: passive evidence first). The proxy reports it; the health of uplinks and
 * their penalties depend on it. `destination` is `host:port`. None of the calls throws or waits.
 */
export interface Evidence {
  dialSucceeded(uplink: string, destination: string): void;
  dialFailed(uplink: string, destination: string, failure: DialFailure, text: string, context: FailureContext): void;
  /** A tunnel got the first byte from the destination: the uplink works for this destination. */
  firstByte(uplink: string, destination: string): void;
  /** Bytes were received in tunnels of the uplink; reported at most once a second. */
  bytesReceived(uplink: string): void;
  /** The connection was made, and its payload stays unacknowledged (docs/spec/uplink-proxy.md#6.4). */
  blackholed(uplink: string, destination: string, context: FailureContext): void;
  /** Bytes were received, then none for the idle limit while the client still waited. */
  stalled(uplink: string, destination: string, context: FailureContext): void;
}
