import type { Objects } from "../handlers/objects.ts";
import type { Registry } from "../resources/registry.ts";
import type { Store } from "../store/store.ts";
import type { DeferredQueue } from "./deferred-queue.ts";

/** The dependencies of every controller of the API server. */
export interface LifecycleDeps {
  readonly store: Store;
  readonly registry: Registry;
  readonly objects: Objects;
  /** The queue for work that runs after the commit that caused it. */
  readonly queue: DeferredQueue;
}
