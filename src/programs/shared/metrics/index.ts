/**
 * Metrics that several programs have. This module does not load the client of the API server: some programs load the client only if they
 * need it.
 */
export { CODE_NAMES, codeName } from "./grpc-code-names.ts";
export { restClientMetrics } from "./rest-client-metrics.ts";
