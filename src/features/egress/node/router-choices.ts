import type { ClientRouter, Gateway } from "../client/index.ts";
import { chooseRouter, isAway, type RouterVerdict } from "../probe/index.ts";
import type { TunnelFlow } from "./router-flows.ts";
import { pairKey } from "./router-pair.ts";
import { keyOf, type RouterUser, type RouterUsers } from "./router-users.ts";

/** A pod that sends to the own address of a router. */
export interface Redirect {
  readonly uid: string;
  /** The Egress, as `namespace/name`. */
  readonly egress: string;
  readonly router: Pick<ClientRouter["metadata"], "name" | "namespace" | "uid">;
}

/** The router of each client where that is not for the Service to choose. Holds an entry for each client of the node and each of its Egresses. */
export class RouterChoices {
  readonly #parts: ConstructorParameters<typeof RouterChoices>[0];
  /** Egresses with a router that was dead and went: its clients stay where they are. */
  readonly #settled = new Set<string>();
  /** The router that has a client's flows, by UID and Egress. */
  readonly #current = new Map<string, string>();
  readonly #redirects = new Map<string, Redirect>();

  constructor(parts: {
    readonly users: RouterUsers;
    /** The routers of an Egress. */
    readonly routersOf: (egress: string) => readonly ClientRouter[];
    /** The verdict on a router, by its UID, for the clients of a namespace. */
    readonly verdictOf: (egress: string, router: string, namespace: string | undefined) => RouterVerdict;
  }) {
    this.#parts = parts;
  }

  /** A client uses an Egress no more. */
  left(egress: string, uid: string): void {
    this.#current.delete(pairKey(egress, uid));
    this.#redirects.delete(pairKey(egress, uid));
    if (this.#parts.users.namespacesOf(egress).length === 0) this.#settled.delete(egress);
  }

  /** A dead router of the Egress is gone: clients have connections by the routers to which they moved, and the Service may send them elsewhere. */
  settle(egress: string): void {
    this.#settled.add(egress);
  }

  /** A router of the Egress answers again. */
  unsettle(egress: string): void {
    this.#settled.delete(egress);
  }

  /**
   * The gateways of a client, with the address of the router that serves it where that is not for the Service to choose. Remembers the choice of a client that
   * is in use.
   */
  redirect<T extends Gateway>(uid: string, gateways: readonly T[]): T[] {
    return gateways.map((gateway) => {
      const key = keyOf(gateway.egress);
      const of = pairKey(key, uid);
      const user = this.#parts.users.get(uid);
      const serving = this.#parts.routersOf(key).map((router) => {
        const { uid: id } = router.metadata;
        return { id, isReady: router.isReady, verdict: this.#parts.verdictOf(key, id, user?.namespace), router };
      });
      const stays = this.#redirects.has(of) && this.#settled.has(key);
      const router = chooseRouter(serving, { client: uid, current: this.#current.get(of), stays });
      const address = router?.router.addresses.find(({ family }) => family === gateway.address.family);
      if (router === undefined || address === undefined) {
        this.#redirects.delete(of);
        return gateway;
      }
      // What is not in use is not forgotten either.
      if (user?.services.has(key) !== true) return { ...gateway, address };
      this.#current.set(of, router.id);
      this.#redirects.set(of, { uid, egress: key, router: router.router.metadata });
      return { ...gateway, address };
    });
  }

  /** The pods that send to the own address of a router. */
  get redirects(): readonly Redirect[] {
    return [...this.#redirects.values()];
  }

  /** Takes which router has the flows of each client of an Egress, if connection tracking has them. */
  learn(egresses: ReadonlySet<string>, flows: readonly TunnelFlow[]): void {
    const routerOf = new Map(flows.map(({ client, to, router }) => [`${client} ${to}`, String(router)]));
    for (const egress of egresses) {
      const routers = new Map(
        this.#parts
          .routersOf(egress)
          .flatMap(({ metadata, addresses }) => addresses.map((one) => [String(one), metadata.uid] as const)),
      );
      for (const { uid, place, services } of this.#parts.users.of(egress)) {
        const of = pairKey(egress, uid);
        if (this.#redirects.has(of)) continue;
        const [router] = (services.get(egress) ?? []).flatMap(
          (to) => routers.get(routerOf.get(`${place.addresses[to.family]} ${to}`) ?? "") ?? [],
        );
        if (router === undefined) this.#current.delete(of);
        else this.#current.set(of, router);
      }
    }
  }

  /** Flows by the Service to a router that their client leaves, and flows to the own address of a router to which it does not send any more. */
  formerOf(egresses: ReadonlySet<string>): (flow: TunnelFlow) => boolean {
    const users = new Map<string, RouterUser>();
    const routers = new Map<string, { readonly egress: string; readonly uid: string }>();
    for (const egress of egresses) {
      for (const user of this.#parts.users.of(egress))
        for (const address of Object.values(user.place.addresses)) users.set(String(address), user);
      for (const { metadata, addresses } of this.#parts.routersOf(egress))
        for (const address of addresses) routers.set(String(address), { egress, uid: metadata.uid });
    }
    return ({ client, to, router }) => {
      const user = users.get(String(client));
      const direct = routers.get(String(to));
      if (direct !== undefined)
        return user !== undefined && this.#redirects.get(pairKey(direct.egress, user.uid))?.router.uid !== direct.uid;
      const served = routers.get(String(router));
      return served !== undefined && isAway(this.#parts.verdictOf(served.egress, served.uid, user?.namespace));
    };
  }
}
