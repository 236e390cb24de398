import { systemClock } from "#base/clock";
import type { Logger } from "#base/log";
import type { Registry } from "#base/metrics";
import type { KubeClient } from "#kube/client";
import { restClientMetrics } from "../../shared/metrics/index.ts";

/** Requests a second, and the burst. */
export interface RateLimit {
  readonly qps: number;
  readonly burst: number;
}

/** The value of `--kubeconfig-qps` and `--kubeconfig-burst`; `undefined`: no limit. */
export function rateLimitOf(values: {
  readonly kubeconfigQps: number;
  readonly kubeconfigBurst: number;
}): RateLimit | undefined {
  const { kubeconfigQps: qps, kubeconfigBurst: burst } = values;
  return qps === 0 ? undefined : { qps, burst: Math.max(1, burst === 0 ? 2 * qps : burst) };
}

/**
 * The clients of the API server. Leases have one of their own, with a limit and connections of its own: anybody who reaches the agents' port can
 * cause as many reviews of tokens as the limit allows, and the Lease must be renewed beside them.
 */
export class KubeClients implements AsyncDisposable {
  /** Without a limit: the authenticator keeps it, because it can refuse what would wait too long. `undefined` unless tokens are reviewed. */
  readonly reviews: KubeClient | undefined;
  /** `undefined` without Leases. */
  readonly leases: KubeClient | undefined;
  /** A client of its own for Nodes, because a list of thousands takes a while. `undefined` unless rules are about them. */
  readonly nodes: KubeClient | undefined;

  readonly #servers: AsyncDisposable | undefined;

  private constructor(
    clients: {
      readonly reviews?: KubeClient | undefined;
      readonly leases?: KubeClient | undefined;
      readonly nodes?: KubeClient | undefined;
    },
    servers: AsyncDisposable | undefined,
  ) {
    this.reviews = clients.reviews;
    this.leases = clients.leases;
    this.nodes = clients.nodes;
    this.#servers = servers;
  }

  /** Rejects with `KubeConfigError`. */
  static async open(
    needs: { readonly reviews: boolean; readonly leases: boolean; readonly nodes: boolean },
    options: {
      readonly kubeconfig: string;
      readonly apiServer: readonly string[];
      readonly rateLimit: RateLimit | undefined;
    },
    { registry, log }: { readonly registry: Registry; readonly log: Logger },
  ): Promise<KubeClients> {
    if (!needs.reviews && !needs.leases && !needs.nodes) return new KubeClients({}, undefined);
    const { followServers, openClient } = await import("../../shared/daemon/index.ts");
    const { apiServer } = options;
    const where = { kubeconfig: options.kubeconfig === "" ? undefined : options.kubeconfig, apiServer };
    const onRequest = restClientMetrics(registry);
    const open = (rateLimit: RateLimit | undefined): Promise<KubeClient> =>
      openClient("proxy-server", where, {
        onRequest,
        clock: systemClock,
        ...(rateLimit === undefined ? {} : { rateLimit }),
      });
    const clients = {
      reviews: needs.reviews ? await open(undefined) : undefined,
      leases: needs.leases ? await open(options.rateLimit) : undefined,
      nodes: needs.nodes ? await open(options.rateLimit) : undefined,
    };
    // The first one asks, so it is none that others wait for in vain.
    const all = [clients.nodes, clients.leases, clients.reviews].filter((one) => one !== undefined);
    return new KubeClients(clients, followServers("proxy-server", all, { log }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#servers?.[Symbol.asyncDispose]();
    await Promise.all([this.reviews, this.leases, this.nodes].map((client) => client?.[Symbol.asyncDispose]()));
  }
}
