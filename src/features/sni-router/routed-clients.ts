import type { Socket } from "node:net";
import { groupOf } from "#base/places";

/**
 * The clients that have sent their hello, by address. A hello proves nothing: an address (a /64 of IPv6) that has more than half of all places gives its oldest one up for another address
 * when all are taken.
 */
export class RoutedClients {
  readonly #max: number;
  readonly #groups = new Map<string, Set<Socket>>();
  /** The group of each client. */
  readonly #clients = new Map<Socket, string>();

  /** `max`: the places of the router; there are no more clients. */
  constructor(max: number) {
    this.#max = max;
  }

  add(client: Socket, address: string | undefined): void {
    const group = groupOf(address);
    this.#clients.set(client, group);
    const members = this.#groups.get(group) ?? new Set();
    this.#groups.set(group, members.add(client));
  }

  remove(client: Socket): void {
    const group = this.#clients.get(client);
    if (group === undefined) return;
    this.#clients.delete(client);
    const members = this.#groups.get(group);
    members?.delete(client);
    if (members?.size === 0) this.#groups.delete(group);
  }

  /** The client that has to go for one of this address; `undefined`: none has to. */
  loserFor(address: string | undefined): Socket | undefined {
    for (const [group, members] of this.#groups) {
      if (2 * members.size <= this.#max || group === groupOf(address)) continue;
      const [oldest] = members;
      return oldest;
    }
    return undefined;
  }
}
