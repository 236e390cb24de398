import type { IpAddress } from "#base/ip";
import type { EgressRef } from "../access/index.ts";
import type { Gateway } from "../client/index.ts";
import type { TunnelDriver } from "../tunnel/index.ts";
import type { ClientPlace } from "./client-places.ts";

/** The use that a pod makes of its Egresses. */
export interface RouterUse {
  /** The pod's Kubernetes namespace: its clients can mislead themselves alone. */
  readonly namespace: string;
  readonly place: ClientPlace;
  readonly driver: TunnelDriver;
  /** With the addresses of the Services. */
  readonly gateways: readonly Pick<Gateway, "egress" | "address">[];
}

/** A pod that uses Egresses. */
export interface RouterUser extends RouterUse {
  readonly uid: string;
  /** The addresses of each Egress's Service, by Egress as `namespace/name`. */
  readonly services: ReadonlyMap<string, readonly IpAddress[]>;
}

/** Returns `namespace/name`. */
export const keyOf = ({ namespace, name }: EgressRef): string => `${namespace}/${name}`;

/**
 * The clients of this node, by their Egresses and Kubernetes namespaces. Of each Egress and namespace one client is the first in turn. Holds an entry for each client of the node and
 * each of its Egresses.
 */
export class RouterUsers {
  /** The users, by UID. */
  readonly #users = new Map<string, RouterUser>();
  /** The users by Egress, then by namespace, then by UID, in the order of their turns. */
  readonly #byEgress = new Map<string, Map<string, Map<string, RouterUser>>>();

  /** Takes what a pod uses now, which may be nothing. Returns the Egresses that it uses no more, and whether the namespaces of any Egress are other ones. */
  set(uid: string, use: RouterUse | undefined): { readonly left: readonly string[]; readonly changed: boolean } {
    const before = this.#users.get(uid);
    const services = new Map<string, IpAddress[]>();
    for (const { egress, address } of use?.gateways ?? []) {
      const key = keyOf(egress);
      services.set(key, [...(services.get(key) ?? []), address]);
    }
    const left = [...(before?.services.keys() ?? [])].filter((key) => !services.has(key));
    let changed = false;
    for (const key of left) changed = this.#leave(uid, key, before?.namespace) || changed;
    if (use === undefined || services.size === 0) {
      this.#users.delete(uid);
      return { left, changed };
    }
    const user = { uid, ...use, services };
    this.#users.set(uid, user);
    for (const key of services.keys()) changed = this.#join(user, key) || changed;
    return { left, changed };
  }

  #join(user: RouterUser, key: string): boolean {
    const spaces = this.#byEgress.get(key) ?? new Map<string, Map<string, RouterUser>>();
    const users = spaces.get(user.namespace) ?? new Map<string, RouterUser>();
    this.#byEgress.set(key, spaces.set(user.namespace, users.set(user.uid, user)));
    return users.size === 1;
  }

  #leave(uid: string, key: string, namespace = ""): boolean {
    const spaces = this.#byEgress.get(key);
    const users = spaces?.get(namespace);
    users?.delete(uid);
    if (users === undefined || users.size > 0) return false;
    spaces?.delete(namespace);
    if (spaces?.size === 0) this.#byEgress.delete(key);
    return true;
  }

  get(uid: string): RouterUser | undefined {
    return this.#users.get(uid);
  }

  /** The Egresses that pods of this node use. */
  get egresses(): Iterable<string> {
    return this.#byEgress.keys();
  }

  /** The namespaces of the clients of an Egress, in the order of their coming. */
  namespacesOf(egress: string): readonly string[] {
    return [...(this.#byEgress.get(egress)?.keys() ?? [])];
  }

  /** The clients of an Egress. */
  *of(egress: string): Iterable<RouterUser> {
    for (const users of this.#byEgress.get(egress)?.values() ?? []) yield* users.values();
  }

  /** The client of an Egress and namespace whose turn it is. */
  first(egress: string, namespace: string): RouterUser | undefined {
    const [user] = this.#byEgress.get(egress)?.get(namespace)?.values() ?? [];
    return user;
  }

  /** It is the turn of the next client. */
  next(egress: string, namespace: string): void {
    const users = this.#byEgress.get(egress)?.get(namespace);
    const [user] = users?.values() ?? [];
    if (users === undefined || user === undefined) return;
    users.delete(user.uid);
    users.set(user.uid, user);
  }
}
