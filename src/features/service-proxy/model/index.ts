/**
 * Services and endpoints as the data plane sees them, one family at a time, and which endpoints a service port uses now.
 *
 * Owns: {@link ServicePort}, {@link Endpoint}, the selection (docs/spec/service-proxy.md#2.2, #2.3). Refuses to know: the API's objects, kernels.
 */
export { flatText, packed, packedSet, SharedTexts } from "./packed.ts";
export { type Selection, selectEndpoints } from "./select.ts";
export { type Endpoint, type NodeInfo, PROTOCOL_NUMBERS, type Protocol, type ServicePort, servicePortId } from "./types.ts";
