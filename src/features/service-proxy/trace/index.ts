/**
 * Walks packets through the data plane's rules as data, for `isthmus explain` and for tests.
 *
 * Owns: {@link trace}. Refuses to know: kernels; the netns tests send the same packets for real and compare.
 */
export type { Outcome, Packet, Step, Trace, TraceContext } from "./types.ts";
export { trace, traceAll } from "./walk.ts";
export { type TracedTable, traceContext } from "./trace-context.ts";
