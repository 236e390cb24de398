import type { AbortOptions } from "#base/async";
import type { Cidr, IpAddress, IpFamily } from "#base/ip";

/** One direction of a tracked connection. */
export interface ConntrackTuple {
  readonly src: IpAddress;
  readonly dst: IpAddress;
  /** TCP, UDP, SCTP. */
  readonly srcPort?: number;
  readonly dstPort?: number;
}

/** A tracked connection. */
export interface ConntrackEntry {
  readonly family: IpFamily;
  /** IP protocol number: 6 TCP, 17 UDP. */
  readonly protocol: number;
  /** As the first packet was. */
  readonly original: ConntrackTuple;
  /** As answers are expected: after NAT, this differs from the mirrored original. */
  readonly reply: ConntrackTuple;
  /** 0 when unset. */
  readonly mark: number;
  /** Seconds until it is forgotten, when known. */
  readonly timeoutSeconds?: number;
}

/** What a tuple must have; absent fields match everything. */
export interface TupleFilter {
  readonly src?: IpAddress | Cidr | undefined;
  readonly dst?: IpAddress | Cidr | undefined;
  readonly srcPort?: number | undefined;
  readonly dstPort?: number | undefined;
}

/** Which connections. */
export interface ConntrackFilter {
  readonly family: IpFamily;
  readonly protocol?: number | undefined;
  readonly original?: TupleFilter | undefined;
  readonly reply?: TupleFilter | undefined;
  /** The mark's bits under `mask` (default all) equal `value`. */
  readonly mark?: { readonly value: number; readonly mask?: number } | undefined;
}

/** The connection tracking of one namespace. Every method throws {@link KernelError}. Whoever opens it disposes it. */
export interface ConntrackPort extends Disposable {
  list(filter: ConntrackFilter): ConntrackEntry[];
  /**
   * Forgets every connection that matches, and of which `when` says so, so that its next packet is judged anew. The table is read once, and
   * all is done in slices of a few milliseconds, between which the event loop turns. Resolves to how many.
   */
  delete(filter: ConntrackFilter, when?: (entry: ConntrackEntry) => boolean, options?: AbortOptions): Promise<number>;
}
