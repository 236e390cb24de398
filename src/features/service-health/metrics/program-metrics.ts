import { Gauge, type Registry, startAtZero } from "#base/metrics";
import { plainMetrics } from "./maker.ts";

/** What this program is. */
export interface ProgramFacts {
  readonly version: string;
  /** Feature gates and whether they are on. `stage` as Kubernetes has it: `ALPHA`, `BETA`, empty for stable. */
  readonly features: readonly { readonly name: string; readonly stage: string; readonly isEnabled: boolean }[];
}

/** `kubernetes_build_info` and `kubernetes_feature_enabled`, which dashboards join with (docs/spec/service-proxy.md#1.7). */
export function programMetrics(registry: Registry, { version, features }: ProgramFacts): void {
  const registers = [registry];
  new Gauge({
    name: "kubernetes_build_info",
    help: "Always 1; says which build runs.",
    labelNames: ["git_version", "compiler", "platform"],
    registers,
  }).set(
    {
      git_version: version,
      compiler: `node ${process.versions.node}`,
      platform: `${process.platform}/${process.arch}`,
    },
    1,
  );
  const enabled = new Gauge({
    name: "kubernetes_feature_enabled",
    help: "1 where a feature gate is on, else 0.",
    labelNames: ["name", "stage"],
    registers,
  });
  for (const { name, stage, isEnabled } of features) enabled.set({ name, stage }, Number(isEnabled));
}

/** How the watches of the API do (docs/spec/service-proxy.md#1.6). */
export class WatchMetrics {
  readonly #errors;
  readonly #connected;

  /** `reasons`: all that a failure may have. */
  constructor(
    registry: Registry,
    { resources, reasons }: { readonly resources: readonly string[]; readonly reasons: readonly string[] },
  ) {
    const plain = plainMetrics(registry);
    this.#errors = plain.counter("watch_errors_total", "Watches and lists that failed.", ["resource", "reason"]);
    startAtZero(this.#errors, { resource: resources, reason: reasons });
    this.#connected = plain.gauge("watch_connected", "1 while a resource is listed and watched, else 0.", ["resource"]);
    for (const resource of resources) this.#connected.set({ resource }, 0);
  }

  /** Listed, and watched since. */
  connected(resource: string): void {
    this.#connected.set({ resource }, 1);
  }

  /** `reason`: one of a closed set, such as an error's code. */
  failed(resource: string, reason: string): void {
    this.#connected.set({ resource }, 0);
    this.#errors.inc({ resource, reason });
  }
}
