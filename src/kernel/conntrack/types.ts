import type { AbortOptions } from "#base/async";
import type { Cidr, IpAddress, IpFamily } from "#base/ip";

/** One direction of a tracked connection. */
export interface ConntrackTuple {
  readonly src: IpAddress;
  readonly dst: IpAddress;
  /** The source port; only TCP, UDP and SCTP have ports. */
  readonly srcPort?: number;
  readonly dstPort?: number;
}

/** A tracked connection. */
export interface ConntrackEntry {
  readonly family: IpFamily;
  /** IP protocol number: 6 TCP, 17 UDP. */
  readonly protocol: number;
  /** Direction of the first packet. */
  readonly original: ConntrackTuple;
  /** Direction of the answers; with NAT it is not the mirrored original. */
  readonly reply: ConntrackTuple;
  /** The mark; 0 if it is not set. */
  readonly mark: number;
  /** Seconds until the connection expires, if known. */
  readonly timeoutSeconds?: number;
}

/** Required fields of a tuple; absent fields match everything. */
export interface TupleFilter {
  readonly src?: IpAddress | Cidr | undefined;
  readonly dst?: IpAddress | Cidr | undefined;
  readonly srcPort?: number | undefined;
  readonly dstPort?: number | undefined;
}

/** Selects connections. */
export interface ConntrackFilter {
  readonly family: IpFamily;
  readonly protocol?: number | undefined;
  readonly original?: TupleFilter | undefined;
  readonly reply?: TupleFilter | undefined;
  /** The mark's bits under `mask` (default all) equal `value`. */
  readonly mark?: { readonly value: number; readonly mask?: number } | undefined;
}

/** The connection tracking of one namespace. Every method throws {@link KernelError}. The opener disposes it. */
export interface ConntrackPort extends Disposable {
  list(filter: ConntrackFilter): ConntrackEntry[];
  /** As {@link ConntrackPort.list}, of a table of any size: yields to the event loop every few milliseconds. */
  listInSlices(filter: ConntrackFilter, options?: AbortOptions): Promise<ConntrackEntry[]>;
  /**
   * Deletes every connection that matches the filter and `when`; the next packet of its flow makes a new one. Reads the table once. Yields
   * to the event loop every few milliseconds; `when` is asked again before each deletion, since its answer may have changed meanwhile. Resolves
   * to the number of deleted connections.
   */
  delete(filter: ConntrackFilter, when?: (entry: ConntrackEntry) => boolean, options?: AbortOptions): Promise<number>;
  /**
   * Sets the mark of every connection that matches to 0; the connection goes on. As {@link ConntrackPort.delete} otherwise. Resolves to the number of
   * connections that had a mark.
   */
  clearMarks(filter: ConntrackFilter, options?: AbortOptions): Promise<number>;
}
