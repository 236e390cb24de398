/**
 * The reconcile loops of the suite. Events only mark that something has changed; the loop reads the whole state, plans, applies and
 * reports. It also runs on a timer, because others edit the same state.
 *
 * Owns: when a sync runs ({@link reconcile}: at once; {@link BoundedRunner}: not too often). Does not know: the synced state.
 */
export { BoundedRunner } from "./bounded-runner.ts";
export { reconcile } from "./reconcile.ts";
