import { ExpectedError } from "#base/errors";
import type { Health, HealthPart } from "#base/health";
import { hasError, type Settings, type Snapshot } from "#base/uplink-model";

/** The reason why a part is degraded. */
class DegradedError extends ExpectedError<"configuration" | "listeners" | "ways"> {
  override readonly name = "DegradedError";
}

/** The state from which the parts are computed. */
export interface HealthPartsInput {
  readonly settings: Pick<Settings, "listeners">;
  /** The reason why the newest configuration is not in force. */
  readonly configError: string | undefined;
  readonly snapshot: Snapshot;
  /** Names of the bound listeners. */
  readonly bound: ReadonlySet<string>;
}

/** The parts of /readyz that the proxy depends on besides the kernel: `configuration`, `listeners` and `ways`. All are always needed. */
export class HealthParts {
  readonly #configuration: HealthPart;
  readonly #listeners: HealthPart;
  readonly #ways: HealthPart;

  constructor(health: Pick<Health, "part">) {
    this.#configuration = health.part("configuration", { needed: "always" });
    this.#listeners = health.part("listeners", { needed: "always" });
    this.#ways = health.part("ways", { needed: "always" });
  }

  update(input: HealthPartsInput): void {
    this.#updateConfiguration(input.configError);
    this.#updateListeners(input);
    this.#updateWays(input.snapshot);
  }

  #updateConfiguration(error: string | undefined): void {
    if (error === undefined) this.#configuration.ok("in force");
    else
      this.#configuration.degraded(new DegradedError("configuration", `the earlier settings stay in force: ${error}`));
  }

  /**
   * Checks the host's listeners only. A missing listener for pods is not an error, because the bridge of the pods may come later or never.
   */
  #updateListeners({ settings, bound }: HealthPartsInput): void {
    const missing = settings.listeners.filter(({ role, name }) => role === "host" && !bound.has(name));
    if (missing.length === 0) this.#listeners.ok("bound");
    else {
      const names = missing.map(({ name }) => name).join(", ");
      this.#listeners.degraded(new DegradedError("listeners", `these listeners are not bound: ${names}`));
    }
  }

  #updateWays({ ready, uplinks, maxCost }: Snapshot): void {
    const usable = uplinks.filter(
      ({ isManagement, cost, addresses }) =>
        isManagement && cost <= maxCost && addresses.some(({ isUsable }) => isUsable),
    );
    const working = usable.filter(({ status }) => !hasError(status));
    if (ready && working.length > 0) this.#ways.ok(working.map(({ name }) => name).join(", "));
    else if (!ready) this.#ways.degraded(new DegradedError("ways", "the uplinks are not known yet"));
    else if (usable.length === 0) {
      this.#ways.degraded(new DegradedError("ways", `no uplink of cost ${maxCost} or less has an address`));
    } else {
      const reasons = usable.map(({ name, status }) => `${name}: ${status.lastError}`);
      this.#ways.degraded(new DegradedError("ways", reasons.join("; ")));
    }
  }
}
