/**
 * Plans the elements of a table: the wanted ones, those that a listing shows, and the batches that turn one into the other (spec
 * service-proxy 2.7, 2.8).
 *
 * Owns: front ends, slots, claims, the three phases of an update. Does not know: sockets, the API, when an update happens.
 */
export { MAX_TIMEOUTS } from "./affinity-timeouts.ts";
export { changeFrontEnd, type ElementChanges } from "./change.ts";
export {
  type AddressClaim,
  type AddressJudge,
  type ClusterFacts,
  frontEndId,
  NO_ENDPOINTS,
  type ObservedFrontEnd,
  type Owner,
  serviceOf,
  UNDECIDED,
} from "./front-end.ts";
export {
  addressBytes,
  addressKey,
  affinityKey,
  endpointValue,
  type FrontEndKey,
  frontEndText,
  portBytes,
  readFrontEndKey,
  slotBytes,
} from "./keys.ts";
export { cidrsIn, type ListedTable, readListing } from "./listing.ts";
export { withoutNested } from "./ranges.ts";
export { type PortWithEndpoints, planService } from "./service.ts";
export { type TableCounts, TableTally } from "./table-counts.ts";
export { type ChangedKeys, type ServicePlan, WantedTable } from "./wanted.ts";
