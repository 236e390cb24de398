import type { Objects } from "../handlers/objects.ts";
import type { Registry } from "../resources/registry.ts";
import type { Store } from "../store/store.ts";
import type { DeferredQueue } from "./deferred-queue.ts";

/** What every controller of the API server works with. */
export interface LifecycleDeps {
  readonly store: Store;
  readonly registry: Registry;
  readonly objects: Objects;
  /** For what is done after the commit that asks for it. */
  readonly queue: DeferredQueue;
}
