/**
 * The interface of coild to CNI executables: the gRPC service `pkg.cnirpc.CNI` on a UNIX socket (docs/spec/pod-network.md#4.2 to #4.4),
 * and calls that the executable's launcher hands over (docs/design/cni-executable.md).
 *
 * Owns: the socket, argument checks, ordering of calls of one container, error codes, the access log.
 * Does not know: how addresses are chosen and how links are made; the program passes both in.
 */
export type { ClientDeps, ClientRequest } from "./client-deps.ts";
export { type CniDeps, CniService, cniHandlers } from "./cni-service.ts";
export { CniFailure, type CniFailureKind } from "./failure.ts";
export { callGrpc } from "./grpc-client.ts";
export { type GrpcHandler, serveGrpc } from "./grpc-server.ts";
export { serveHandover } from "./handover-server.ts";
export {
  INSPECT_EGRESS_PATH,
  INSPECT_NICS_PATH,
  INSPECT_PATH,
  inspectEgress,
  inspectHandler,
  inspectNicAgent,
  inspectNodes,
} from "./inspection.ts";
export { callLocally, type LocalCallOptions } from "./local-call.ts";
export type { FoundPod, PodIdentity } from "./pod-identity.ts";
export { reflectionConversations } from "./reflection.ts";
