/**
 * The one loop of the suite: events only wake it, with a reason; a pass reads the whole state, plans, applies and reports. Which loops are no
 * {@link Loop}, and why: docs/design/loops.md.
 *
 * Owns: when a pass runs, that none runs before all inputs were listed, and the progress. Does not know: the state.
 *
 * ```ts
 * const loop = new Loop({ everyMs: 60_000, inputs: { blocks, nodes }, onFailure: (error) => health.degraded(error) });
 * blocks.addHandler({ onAdd: () => loop.wake("block") });
 * const running = loop.run(sync, { signal });
 * await loop.applied(loop.wake("test"), { signal });
 * ```
 */
export { keepListening } from "./keep-listening.ts";
export {
  Loop,
  type LoopOptions,
  type PassResult,
  progressText,
} from "./loop.ts";
export { reconcile } from "./reconcile.ts";
export { repeat } from "./repeat.ts";
