/**
 * From the API's objects to what plans are made from, one family at a time.
 *
 * Owns: reading Services and EndpointSlices leniently, merging slices, what changed. Refuses to know: watches, and when to plan.
 */
export { lenientAddress, lenientCidr } from "./address.ts";
export { PROXY_NAME_LABEL, portsOf, type ServiceOptions } from "./service.ts";
export { SERVICE_SHAPE, SLICE_SHAPE } from "./shapes.ts";
export {
  type EndpointView,
  endpointsOf,
  SERVICE_NAME_LABEL,
  type SliceView,
  sliceView,
  TRIGGER_TIME_ANNOTATION,
} from "./slice.ts";
export { MAX_TRIGGERS, type NodeContext, type TrackedPort, Tracker } from "./tracker.ts";
