import type { AbortOptions } from "#base/async";
import type { HealthPart } from "#base/health";
import type { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import {
  type CrowdedDestination,
  type EgressRef,
  endFlows,
  formerClients,
  type GuardCounter,
  GuardTable,
  listCrowded,
  planRouter,
  planRouterGuard,
  planRules,
  planShares,
  ROUTER_TABLE,
  type RouterPod,
  type RuleBackend,
  routerScope,
  sharesInKernel,
  syncNet,
  type TunnelDriver,
} from "#features/egress";
import type { ConntrackPort } from "#kernel/conntrack";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import type { Nft } from "#kernel/nft";
import type { NftElements } from "#kernel/nft-elements";
import type { RouterReport } from "./report.ts";
import type { RouterSources } from "./sources.ts";

/** The kernel ports of a router, and the source of its clients. */
export interface RouterParts {
  readonly stack: NetStack;
  readonly nft: Nft;
  readonly elements: NftElements;
  readonly conntrack: ConntrackPort;
  /** The rules that masquerade. */
  readonly backend: RuleBackend;
  /** This pod as it is now. */
  readonly podNow: () => RouterPod;
  readonly sources: Pick<RouterSources, "admission" | "destinations" | "unchecked">;
  readonly report: Pick<RouterReport, "clients" | "unchecked">;
  /** State of the deletion of flows. */
  readonly flows: HealthPart;
  readonly log: Logger;
}

/** Settings that do not change while the router runs. */
export interface RouterInit {
  readonly egress: EgressRef;
  readonly driver: TunnelDriver;
  readonly ifname: string;
  /** UDP port of the tunnels. */
  readonly port: number;
  readonly sourcePortAuto: boolean;
  /** Ranges of the cluster, which a wider destination does not open. */
  readonly inCluster: readonly Cidr[];
}

/** Nothing is wanted: all clients that the kernel has are former ones. */
const NO_PLAN = { settings: new Map<string, string>(), fouPorts: [], links: [], rules: [], routes: [] };

/** A router in its network namespace: guard, tunnels, ways back and masquerading (docs/spec/pod-network.md#9). */
export class Router {
  readonly #parts: RouterParts;
  readonly #init: RouterInit;
  readonly #guard: GuardTable;
  readonly #closed: ReturnType<typeof planRouterGuard>;
  /** Transactions of nftables in the namespace at the end of the last sync. */
  #generation: number | undefined;
  /** The shares of source ports at the end of the last sync, by clients' addresses. */
  #shares: ReadonlyMap<string, number> | undefined;

  constructor(parts: RouterParts, init: RouterInit) {
    this.#parts = parts;
    this.#init = init;
    this.#guard = new GuardTable(parts, ROUTER_TABLE);
    this.#closed = planRouterGuard({ ...init, clients: [], destinations: [] });
  }

  /**
   * Closes the router until its clients are known. What an earlier container of this pod has admitted stays admitted. Rejects with `NftError` and
   * `KernelError`.
   */
  async close(): Promise<void> {
    if (this.#guard.exists || formerClients(this.#parts.stack, NO_PLAN).length > 0) return;
    await this.#guard.sync(this.#closed);
  }

  /** True if another program has changed nftables since the last sync. Throws `KernelError`. */
  get isFilterChanged(): boolean {
    return this.#generation !== undefined && this.#generation !== this.#parts.elements.generation();
  }

  /** Returns the packets that the guard has dropped, by reason, and those that it has masqueraded. Throws `KernelError`. */
  counters(): readonly GuardCounter[] {
    return this.#guard.counters();
  }

  /** The destinations to which the common source ports have run out lately; none if there is no table. Throws `KernelError`. */
  crowded(): readonly CrowdedDestination[] {
    return listCrowded(this.#parts.elements, ROUTER_TABLE);
  }

  /** Brings the namespace to what the clients of now need, and returns the number of changes. Idempotent. */
  async sync({ signal }: AbortOptions): Promise<number> {
    const { stack, backend, podNow, sources, report, elements, log } = this.#parts;
    const { port, ...init } = this.#init;
    const admission = sources.admission();
    const clients = admission.clients.flatMap(({ addresses }) => addresses);
    const pod = podNow();
    const plan = planRouter(pod, clients, { port, ...init });
    // Before the ways: who is none any more is shut out at once, and a client that is new has no way back until its route is there.
    const shares = planShares(admission.clients, undefined, this.#shares ?? sharesInKernel(elements, ROUTER_TABLE));
    const guard = planRouterGuard({ port, ...init, clients, destinations: sources.destinations(), shares });
    let changes = await backend.sync(planRules(pod));
    changes += await this.#guard.sync(guard);
    this.#shares = shares;
    // Nothing below changes nftables: what does meanwhile is another program.
    this.#generation = elements.generation();
    await this.#endFlows(plan, { signal });
    changes += await syncNet(stack, plan, routerScope(port));
    report.clients(admission, plan);
    report.unchecked(sources.unchecked);
    if (changes > 0) log.info("tunnels changed", { changes, clients: admission.clients.length });
    return changes;
  }

  /** Before the ways back of former clients go, so that after a kill the next process finds them. */
  async #endFlows(plan: Parameters<typeof formerClients>[1], options: AbortOptions): Promise<void> {
    const { stack, conntrack, flows, log } = this.#parts;
    const former = formerClients(stack, plan);
    try {
      const ended = await endFlows(conntrack, former, options);
      if (ended > 0) log.info("flows of former clients were ended", { flows: ended, addresses: former.length });
      flows.ok();
    } catch (error) {
      if (!isKernelError(error)) throw error;
      // Its entries end by themselves; the ways of others do not wait for them.
      flows.degraded(error);
    }
  }
}
