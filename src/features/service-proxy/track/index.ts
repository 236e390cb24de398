/**
 * From the API's objects to what plans are made from, one family at a time.
 *
 * Owns: reading Services and EndpointSlices leniently, merging slices, what changed. Refuses to know: watches, and when to plan.
 */
export { lenientAddress, lenientCidr } from "./address.ts";
export { PROXY_NAME_LABEL, portsOf } from "./service.ts";
export { SERVICE_SHAPE, SLICE_SHAPE } from "./shapes.ts";
export { endpointsOf, type SliceView, sliceView } from "./slice.ts";
export { MAX_TRIGGERS, type NodeContext, type TrackedPort, Tracker } from "./tracker.ts";
