/**
 * The NAT clients of the pods of one node: they follow Egresses, Services, routers and pods of the API.
 *
 * Owns: {@link EgressClients} and all that it watches, plans and writes events about. Does not know: calls of container runtimes, the program.
 */
export { EgressClientError, type EgressClientErrorCode } from "./client-error.ts";
export { type EgressClientOptions, EgressClients } from "./egress-clients.ts";
export { FILTER_BACKENDS, type FilterOpeners, filterOpeners } from "./open-filter.ts";
