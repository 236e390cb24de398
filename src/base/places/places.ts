import type { Socket } from "node:net";
import { groupOf } from "./address-group.ts";

/** A connection that has a place. */
interface Holder {
  readonly socket: Socket;
  readonly group: string;
  /** Requests that are not answered yet. */
  requests: number;
}

/**
 * The places of a server's connections. At the limit the next connection takes the place of one of the group (an IPv4 address, or a /64 of IPv6) that has the
 * most: of its connections the one that has been without a request for longest, else its oldest. So a client that opens many takes places from itself.
 */
export class Places {
  readonly #max: number;
  /** In the order in which they became idle or busy: of those that are idle, first the one that has been so for longest. */
  readonly #holders = new Map<Socket, Holder>();
  readonly #counts = new Map<string, number>();

  /** `max`: 1 or more. */
  constructor(max: number) {
    this.#max = max;
  }

  get size(): number {
    return this.#holders.size;
  }

  /** Gives a connection a place, without a request. Returns the connection that loses its place, which the caller has to end. */
  take(socket: Socket): Socket | undefined {
    const loser = this.#holders.size < this.#max ? undefined : this.#loser();
    if (loser !== undefined) this.leave(loser);
    const group = groupOf(socket.remoteAddress);
    this.#holders.set(socket, { socket, group, requests: 0 });
    this.#counts.set(group, (this.#counts.get(group) ?? 0) + 1);
    return loser;
  }

  /** A request begins. */
  begin(socket: Socket): void {
    this.#count(socket, 1);
  }

  /** The answer to a request is out, or will not come. */
  end(socket: Socket): void {
    this.#count(socket, -1);
  }

  leave(socket: Socket): void {
    const holder = this.#holders.get(socket);
    if (holder === undefined) return;
    this.#holders.delete(socket);
    const left = (this.#counts.get(holder.group) ?? 1) - 1;
    if (left > 0) this.#counts.set(holder.group, left);
    else this.#counts.delete(holder.group);
  }

  /** All connections of now. */
  [Symbol.iterator](): IterableIterator<Socket> {
    return [...this.#holders.keys()].values();
  }

  #count(socket: Socket, more: 1 | -1): void {
    const holder = this.#holders.get(socket);
    if (holder === undefined) return;
    holder.requests += more;
    this.#holders.delete(socket);
    this.#holders.set(socket, holder);
  }

  #loser(): Socket | undefined {
    let most = "";
    for (const [group, count] of this.#counts) if (count > (this.#counts.get(most) ?? 0)) most = group;
    let oldest: Holder | undefined;
    for (const holder of this.#holders.values()) {
      if (holder.group !== most) continue;
      if (holder.requests === 0) return holder.socket;
      oldest ??= holder;
    }
    return oldest?.socket;
  }
}
