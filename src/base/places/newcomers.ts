import type { Socket } from "node:net";
import type { Clock } from "#base/clock";
import { resetSocket } from "#base/socket-reset";
import { groupOf } from "./address-group.ts";

export interface NewcomersOptions {
  /** Connections at once, 1 or more. */
  readonly max: number;
  /** Connections at once of one IPv4 address, or one /64 of IPv6. Default: half of `max`. */
  readonly maxPerAddress?: number;
  /** A client has this time at least to prove itself while others of its address come, in milliseconds. Default 2,000. */
  readonly graceMs?: number;
  /** True for addresses behind which many clients are, as those of balancers: they have no bound of their own. Default: none. */
  readonly isShared?: (address: string) => boolean;
  /** Ends a connection that has to go. Default: a reset. */
  readonly end?: (socket: Socket) => void;
  readonly clock: Clock;
}

/** A connection that has a place. */
interface Holder {
  readonly socket: Socket;
  /** A socket forgets it when it closes. */
  readonly peer: Peer;
  readonly group: string;
  /** Milliseconds of the clock. */
  readonly since: number;
}

/** `ADDRESS:PORT` of a client, by which a connection is known also on top of TLS. */
type Peer = string;

/**
 * The places of newcomers at a listener. At a bound, the next connection takes the place of the oldest one of its own address, or of the address that has
 * the most: so one that opens many takes places from itself. Those of one's own address have a grace, after which they go, and within which the next one is
 * refused: many clients that come at once, as after a restart, are served in turn.
 */
export class Newcomers {
  readonly #options: Required<Omit<NewcomersOptions, "isShared" | "end">> & Pick<NewcomersOptions, "isShared" | "end">;
  readonly #holders = new Map<Peer, Holder>();
  /** The oldest of each group first. */
  readonly #groups = new Map<string, Set<Holder>>();
  #refused = 0;

  constructor(options: NewcomersOptions) {
    const { max } = options;
    this.#options = { maxPerAddress: Math.max(1, Math.floor(max / 2)), graceMs: 2000, ...options };
  }

  get size(): number {
    return this.#holders.size;
  }

  /** Connections that were ended for others, or refused, since the start. */
  get refused(): number {
    return this.#refused;
  }

  /** Gives a new connection a place, which it has until it ends or is {@link known}. Returns false if it was refused, and is ended. */
  admit(socket: Socket): boolean {
    return this.#admit(socket, socket.remoteAddress);
  }

  /** A balancer has said whose its connection is: it counts for that address from now on. Returns false if it has no place any more, or was refused, and is ended. */
  attribute(socket: Socket, address: string): boolean {
    const holder = this.#holders.get(peerOf(socket));
    if (holder === undefined) return false;
    this.#leave(holder);
    return this.#admit(socket, address);
  }

  #admit(socket: Socket, address: string | undefined): boolean {
    const { max, maxPerAddress, isShared, clock } = this.#options;
    const group = groupOf(address);
    const own = this.#groups.get(group);
    const isBounded = address === undefined || isShared?.(address) !== true;
    if (isBounded && own !== undefined && own.size >= maxPerAddress) {
      if (!this.#end(own, { hasGrace: true })) return this.#refuse(socket);
    } else if (this.#holders.size >= max) {
      const most = this.#most();
      if (!this.#end(most, { hasGrace: most === own })) return this.#refuse(socket);
    }
    const holder = { socket, peer: peerOf(socket), group, since: clock.monotonic() };
    this.#holders.set(holder.peer, holder);
    const members = this.#groups.get(group) ?? new Set();
    this.#groups.set(group, members.add(holder));
    socket.once("close", () => this.#leave(holder));
    return true;
  }

  /** A client has proved itself: its connection gives the place back. `peer` is its `ADDRESS:PORT`, or the socket, or the TLS socket on top of that. */
  known(peer: Peer | Pick<Socket, "remoteAddress" | "remotePort">): void {
    const holder = this.#holders.get(typeof peer === "string" ? peer : peerOf(peer));
    if (holder !== undefined) this.#leave(holder);
  }

  /** Ends the oldest newcomer of the address that has the most, for a connection that needs its descriptors. Returns false if there is none. */
  makeRoom(): boolean {
    const most = this.#most();
    return most !== undefined && this.#end(most, { hasGrace: false });
  }

  #most(): Set<Holder> | undefined {
    let most: Set<Holder> | undefined;
    for (const members of this.#groups.values()) if (members.size > (most?.size ?? 0)) most = members;
    return most;
  }

  /** Ends the oldest one. Returns false if it is in its grace. */
  #end(members: Set<Holder> | undefined, { hasGrace }: { readonly hasGrace: boolean }): boolean {
    const [oldest] = members ?? [];
    if (oldest === undefined) return true;
    const { clock, graceMs } = this.#options;
    if (hasGrace && clock.monotonic() - oldest.since < graceMs) return false;
    this.#refused += 1;
    this.#leave(oldest);
    (this.#options.end ?? resetSocket)(oldest.socket);
    return true;
  }

  #refuse(socket: Socket): false {
    this.#refused += 1;
    socket.on("error", () => socket.destroy());
    resetSocket(socket);
    return false;
  }

  #leave(holder: Holder): void {
    // Sockets that ended at once have none, and share a key.
    if (this.#holders.get(holder.peer) === holder) this.#holders.delete(holder.peer);
    const members = this.#groups.get(holder.group);
    members?.delete(holder);
    if (members?.size === 0) this.#groups.delete(holder.group);
  }
}

function peerOf({ remoteAddress, remotePort }: Pick<Socket, "remoteAddress" | "remotePort">): Peer {
  return `${remoteAddress}:${remotePort}`;
}
