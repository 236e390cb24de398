/**
 * Metrics that several programs have. It loads no client of the API server, which some programs load only when they need it.
 */
export { CODE_NAMES, codeName } from "./grpc-code-names.ts";
export { restClientMetrics } from "./rest-client-metrics.ts";
