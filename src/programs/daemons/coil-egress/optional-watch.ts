import { Deferred } from "#base/async";
import type { Clock } from "#base/clock";
import type { HealthPart } from "#base/health";
import { isKubeError, type KubeApi, type KubeObject, type ResourceType } from "#kube/client";
import { createInformer, type Informer, type InformerHealth } from "#kube/informer";

type Cached = Pick<KubeObject, "metadata">;

/** Answers in a row that refuse a list, before it counts as refused. */
const REFUSALS = 2;

/** State of a watch. `read`: the objects are known. `refused`: the account may not read them. `absent`: the cluster does not have the type. */
export type WatchState = "unknown" | "read" | "refused" | "absent";

/** A watch that the account may lack the right for. */
export class OptionalWatch<T extends KubeObject, U extends Cached> {
  readonly informer: Informer<T, U>;
  readonly #settled = new Deferred();
  readonly #health: HealthPart;
  readonly #onState: () => void;
  readonly #isBound: () => boolean;
  #state: WatchState = "unknown";
  #refusals = 0;

  constructor(
    parts: {
      readonly api: KubeApi;
      readonly health: HealthPart;
      /**
       * Returns true if the account has been seen to have rights. Until then a refusal says nothing: a binding may come later than the router, and a server that has just
       * started refuses what it will allow.
       */
      readonly isBound: () => boolean;
      /** Called when {@link OptionalWatch.state} has changed. */
      readonly onState: () => void;
      readonly clock: Clock;
    },
    type: ResourceType<T>,
    options: Omit<Parameters<typeof createInformer<T, U>>[2], "onHealth" | "clock">,
  ) {
    this.#health = parts.health;
    this.#onState = parts.onState;
    this.#isBound = parts.isBound;
    this.informer = createInformer<T, U>(parts.api, type, {
      ...options,
      clock: parts.clock,
      onHealth: (state) => this.#heard(state),
    });
  }

  /** Once read, it stays read: what was read last counts while the server is away, and also if the right is taken away. */
  get state(): WatchState {
    return this.#state;
  }

  /** Resolves when the state is not `unknown` any more. */
  get settled(): Promise<void> {
    return this.#settled.promise;
  }

  #heard(health: InformerHealth): void {
    if (health.state === "ready") {
      this.#refusals = 0;
      this.#health.ok();
      // The handlers were called for the list before the informer says that it has it.
      void this.informer.synced.then(() => this.#become("read"));
      return;
    }
    this.#health.degraded(health.error);
    this.#refusals = isKubeError(health.error, "forbidden") && this.#isBound() ? this.#refusals + 1 : 0;
    if (this.#state !== "unknown") this.#told();
    else if (isKubeError(health.error, "not-found")) this.#become("absent");
    else if (this.#refusals >= REFUSALS) this.#become("refused");
  }

  #become(state: WatchState): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#told();
    this.#settled.resolve();
    this.#onState();
  }

  /** A right that this account never had is no fault of the program: it is ready without. */
  #told(): void {
    if (this.#state === "refused") this.#health.ok("the account may not read them: not checked");
    if (this.#state === "absent") this.#health.ok("the cluster does not have this type");
  }
}
