/**
 * A controller program: leader election, informers, reconcilers, health, metrics and the end at a signal.
 *
 * Owns: {@link runController}, which contains all of these parts. Does not know: the reconciled objects.
 *
 * ```ts
 * run: ({ values, signal }) =>
 *   runController({ name: "widget-controller", values, signal }, [{ lease: "widget-leader", setUp: ({ api, watch, control }) => {
 *     const all = watch(widgets);
 *     control("widget", { of: all, on: [all], reconcile: (name, { signal }) => syncWidget(api, name, { signal }) });
 *   } }]),
 * ```
 */
export { controllerProgramMetrics } from "./metrics.ts";
export { type ControllerReplica, type LeaderPart, type LeadingController, runController } from "./run-controller.ts";
