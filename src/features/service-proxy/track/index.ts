/**
 * Turns the API's objects into the inputs of plans, one family at a time.
 *
 * Owns: lenient reading of Services and EndpointSlices, merging of slices, change tracking. Does not know: watches, when to plan.
 */
export { lenientAddress, lenientCidr } from "./address.ts";
export { PROXY_NAME_LABEL, portsOf, sourceRangesOf } from "./service.ts";
export { SERVICE_SHAPE, SLICE_SHAPE } from "./shapes.ts";
export { MAX_ELEMENTS, tooLargeText } from "./size.ts";
export { endpointsOf, type SliceView, sliceView } from "./slice.ts";
export { MAX_TRIGGERS, type NodeContext, type ServiceSteps, type TrackedPort, Tracker } from "./tracker.ts";
