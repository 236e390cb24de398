/**
 * A Kubernetes API server in one process, in memory, for labs and tests only: nothing is stored or replicated.
 *
 * Owns: the HTTP API that kubectl and controllers speak (discovery, OpenAPI, CRUD, watch, patches, server-side apply,
 * Tables, CRDs, RBAC on tokens, garbage collection, namespace life cycle) and faults injected into it. Does not know: nodes, pods'
 * processes, and controllers of workloads; those are clients like any other.
 *
 * ```ts
 * await using server = await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, log, clock });
 * await writeFile("kubeconfig", server.kubeconfig());
 * server.seed([{ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "a", namespace: "default" } }]);
 * server.faults.add({ match: { verb: "update", probability: 0.05 }, action: { status: 409 } });
 * ```
 */

export type {
  Authenticator,
  Authorizer,
  Decision,
  PolicyRule,
  RequestAttributes,
  Rules,
  UserInfo,
} from "./auth/auth.ts";
export { ApiError, type Cause, type StatusDetails, type StatusReason } from "./errors.ts";
export type { FaultAction, FaultMatch, FaultPlan, FaultRule } from "./faults/plan.ts";
export type { AdmissionPlugin, AdmissionRequest } from "./handlers/admission.ts";
export type { ReviewedToken, ReviewedTokens } from "./handlers/token-review.ts";
export type { KubeletAccess, KubeletPlace } from "./http/kubelet-request.ts";
export type { Json, JsonObject } from "./object/json.ts";
export type { ApiServerOptions, ListenAddress } from "./options.ts";
export type { SeedObject } from "./seed.ts";
export { type ApiServer, type KubeconfigOverrides, startApiServer } from "./server.ts";
export { DEFAULT_SERVICE_RANGES, type ServiceRanges } from "./services/allocator.ts";
