import { startAtZero } from "#base/metrics";
import type { ServiceProxyMetrics } from "./service-proxy-metrics.ts";

/** The build and its feature gates. */
export interface ProgramFacts {
  readonly version: string;
  /** `stage` as in Kubernetes: `ALPHA`, `BETA`, empty for stable. */
  readonly features: readonly { readonly name: string; readonly stage: string; readonly isEnabled: boolean }[];
}

/** Sets `kubernetes_build_info` and `kubernetes_feature_enabled`, which dashboards join with other metrics. */
export function programMetrics(
  metrics: Pick<ServiceProxyMetrics, "buildInfo" | "featureEnabled">,
  { version, features }: ProgramFacts,
): void {
  const compiler = `node ${process.versions.node}`;
  metrics.buildInfo.set({ git_version: version, compiler, platform: `${process.platform}/${process.arch}` }, 1);
  for (const { name, stage, isEnabled } of features) metrics.featureEnabled.set({ name, stage }, Number(isEnabled));
}

/** Counts and states of the watches of the API (docs/spec/service-proxy.md#1.6). */
export class WatchMetrics {
  readonly #errors: ServiceProxyMetrics["watchErrors"];
  readonly #connected: ServiceProxyMetrics["watchConnected"];

  /** `reasons`: all reasons that a failure may have. */
  constructor(
    { watchErrors, watchConnected }: Pick<ServiceProxyMetrics, "watchErrors" | "watchConnected">,
    { resources, reasons }: { readonly resources: readonly string[]; readonly reasons: readonly string[] },
  ) {
    this.#errors = watchErrors;
    this.#connected = watchConnected;
    startAtZero(watchErrors, { resource: resources, reason: reasons });
    for (const resource of resources) watchConnected.set({ resource }, 0);
  }

  /** Records that the resource was listed and is now watched. */
  connected(resource: string): void {
    this.#connected.set({ resource }, 1);
  }

  /** Records that a list or watch failed. `reason`: one of a closed set, such as an error's code. */
  failed(resource: string, reason: string): void {
    this.#connected.set({ resource }, 0);
    this.#errors.inc({ resource, reason });
  }
}
