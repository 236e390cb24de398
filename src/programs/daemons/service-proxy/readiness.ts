import { Health, type HealthPart } from "#base/health";
import type { IpFamily } from "#base/ip";
import type { InformerHealth } from "#kube/informer";

/** The reason of a part before its first list. */
const NOT_YET = "not read yet";

/**
 * The dependencies of the proxy, one line each, for `/readyz`, which answers 503 while a part is degraded. Load balancers use `/healthz`
 * instead, which also takes adopted tables into account.
 */
export class Readiness {
  readonly health = new Health();
  readonly #watches = new Map<string, HealthPart>();
  readonly #tables = new Map<IpFamily, HealthPart>();
  readonly #flows: HealthPart;
  /** The reason why each family's flows cannot be checked; `undefined`: they can be. Families without a report are absent. */
  readonly #flowFaults = new Map<IpFamily, unknown>();
  readonly #families: readonly IpFamily[];

  constructor(of: { readonly resources: readonly string[]; readonly families: readonly IpFamily[] }) {
    for (const resource of of.resources) {
      const part = this.health.part(`watch ${resource}`, { needed: "always" });
      part.degraded(new Error(NOT_YET));
      this.#watches.set(resource, part);
    }
    this.#families = of.families;
    for (const family of of.families) {
      const part = this.health.part(`nftables IPv${family}`, { needed: "always" });
      part.degraded(new Error("not synced yet"));
      this.#tables.set(family, part);
    }
    this.#flows = this.health.part("conntrack", { needed: "always" });
  }

  /** A resource was listed for the first time. */
  read(resource: string): void {
    this.#watches.get(resource)?.ok();
  }

  /** Reports the result of a list or watch. */
  watch(resource: string, state: InformerHealth): void {
    if (state.state === "ready") this.read(resource);
    else this.#watches.get(resource)?.degraded(state.error);
  }

  /** The API server does not serve the resource, so there are no such objects. */
  absent(resource: string): void {
    this.#watches.get(resource)?.ok("not served by this API server");
  }

  synced(family: IpFamily, progress?: string): void {
    this.#tables.get(family)?.ok("", progress);
  }

  failed(family: IpFamily, error: unknown): void {
    this.#tables.get(family)?.degraded(error);
  }

  /** Reports that a family's flows were checked; with `error`, the reason why connection tracking could not be read or changed. */
  flows(family: IpFamily, error?: unknown): void {
    this.#flowFaults.set(family, error);
    const fault = [...this.#flowFaults.values()].find((one) => one !== undefined);
    if (fault !== undefined) this.#flows.degraded(fault);
    else if (this.#families.every((one) => this.#flowFaults.has(one))) this.#flows.ok();
  }
}
