/**
 * Traces packets through the data plane's rules as data, for `isthmus explain` and for tests.
 *
 * Owns: {@link trace}. Does not know: kernels. The netns tests send the same packets for real and compare.
 */

export { type TracedTable, traceContext } from "./trace-context.ts";
export type { Outcome, Packet, Step, Trace, TraceContext } from "./types.ts";
export { trace, traceAll } from "./walk.ts";
