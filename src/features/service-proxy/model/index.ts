/**
 * Service ports and endpoints of one family, and the selection of the endpoints that a service port uses.
 *
 * Owns: {@link ServicePort}, {@link Endpoint}, the selection (docs/spec/service-proxy.md#2.2, #2.3). Does not know: the API's objects, kernels.
 */
export { flatText, packed, packedSet, SharedTexts } from "./packed.ts";
export { type Selection, selectEndpoints } from "./select.ts";
export {
  type Endpoint,
  type NodeInfo,
  PROTOCOL_NUMBERS,
  type Protocol,
  type ServicePort,
  servicePortId,
} from "./types.ts";
