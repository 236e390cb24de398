/**
 * The messages of `pkg.cnirpc.CNI`, the service between the CNI executable and coild (docs/spec/pod-network.md#4.2, Coil's
 * `cni.proto`). Hand-written, because the executable is started for each pod and must start fast.
 *
 * ```ts
 * const bytes = encodeCniArgs({ ...EMPTY_CNI_ARGS, containerId: "c1", ifname: "eth0" });
 * decodeCniArgs(bytes).containerId; // "c1"
 * ```
 */
export {
  byteHandlers,
  type CniCaller,
  type CniRpcCall,
  type ContainerMethod,
  encodeCall,
  methodPath,
} from "./calls.ts";
export {
  CNI_ERROR_TYPE_URL,
  CNI_SERVICE,
  type CniArgs,
  type CniErrorDetail,
  CniRpcError,
  cniErrorAny,
  cniErrorOf,
  decodeAddResponse,
  decodeCniArgs,
  decodeCniError,
  decodeGcArgs,
  EMPTY_CNI_ARGS,
  encodeAddResponse,
  encodeCniArgs,
  encodeCniError,
  encodeGcArgs,
  type GcArgs,
} from "./messages.ts";
