import type { Snapshot } from "./uplink.ts";

/** Where the proxy reads the uplinks from. */
export interface SnapshotSource {
  readonly current: Snapshot;
  /** Called after each change of `current`, not for the first one. */
  onChange(listener: (snapshot: Snapshot) => void): Disposable;
  /** A bind failed because the address is gone: read the kernel again now (docs/spec/uplink-proxy.md#6.1). */
  refresh(): void;
}

/** Why an attempt over an uplink failed. `refused`: the destination answered. */
export type DialFailure = "timeout" | "refused" | "unreachable" | "address-gone" | "ports-exhausted" | "dns" | "other";

/** Whose connection has met it. What pods can bring about counts less than what the host sees, and never alone fails an uplink. */
export type ClientKind = "host" | "pod";

/** What a failure rests on. */
export interface FailureContext {
  readonly clientKind: ClientKind;
  /** Nothing came for so long before it was taken for one, milliseconds. */
  readonly waitedMs: number;
}

/**
 * What real traffic says of uplinks (docs/spec/uplink-proxy.md#3.3: passive evidence first). The proxy tells, reachability and
 * penalties listen. `destination` is `host:port`. None of the calls throws or waits.
 */
export interface Evidence {
  dialSucceeded(uplink: string, destination: string): void;
  dialFailed(uplink: string, destination: string, failure: DialFailure, text: string, context: FailureContext): void;
  /** The first byte from the destination in a tunnel: the uplink works for it. */
  firstByte(uplink: string, destination: string): void;
  /** Bytes came in tunnels of the uplink; told at most once a second per uplink. */
  bytesReceived(uplink: string): void;
  /** Connected, payload sent, nothing of it acknowledged (docs/spec/uplink-proxy.md#6.4). */
  blackholed(uplink: string, destination: string, context: FailureContext): void;
  /** Bytes had come, then none for the idle limit while the client still waited. */
  stalled(uplink: string, destination: string, context: FailureContext): void;
}
