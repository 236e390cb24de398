/**
 * Controllers: informers mark keys dirty, workers reconcile them.
 *
 * Owns: the queue, retries, the turns of passes that wait for something scarce ({@link Turns}), one log line for an error that repeats, the samples of controller-runtime's metrics. Does not know: the object
 * that a key names, leader election, metrics registries.
 *
 * ```ts
 * const controller = new Controller({ name: "addresspool", reconcile: (key) => syncPool(key), waitFor: [pools], log, clock });
 * pools.addHandler({ onAdd: (pool) => controller.enqueue(pool.metadata.name) });
 * group.spawn((signal) => controller.run({ signal }));
 * ```
 */
export { Controller, type ControllerOptions, type ReconcileSample } from "./controller.ts";
export { Turns } from "./turns.ts";
