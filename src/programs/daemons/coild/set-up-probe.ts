import { Dirty } from "#base/async";
import { describeError } from "#base/errors";
import type { HealthPart } from "#base/health";
import { reconcile } from "#base/reconcile";
import { probePodSetUp } from "#features/pod-network";
import type { Kernel } from "#kernel/net";

/** The interval of the probes, in milliseconds. A probe takes a few milliseconds, and privileges rarely change. */
const RESYNC_MS = 600_000;

/** Finds out whether this process may make links as an ADD does: it makes some in temporary network namespaces. */
export class SetUpProbe {
  readonly #kernel: Kernel;
  readonly #health: HealthPart;
  #fault: string | undefined;

  constructor(deps: { readonly kernel: Kernel; readonly health: HealthPart }) {
    this.#kernel = deps.kernel;
    this.#health = deps.health;
  }

  /** The refusal of the last probe; `undefined` if it succeeded. */
  get fault(): string | undefined {
    return this.#fault;
  }

  /** Probes at once, then at an interval, and more often after a refusal, until the signal aborts. */
  async run(options: { readonly signal: AbortSignal }): Promise<void> {
    await reconcile({
      dirty: new Dirty(),
      health: {
        ok: () => {
          this.#fault = undefined;
          this.#health.ok();
        },
        degraded: (error) => {
          this.#fault = `pods cannot be set up: ${describeError(error)}`;
          this.#health.degraded(this.#fault);
        },
      },
      signal: options.signal,
      resyncMs: RESYNC_MS,
      sync: async () => {
        probePodSetUp(this.#kernel);
        return 0;
      },
    });
  }
}
