/**
 * A typed client of the Kubernetes API.
 *
 * Owns: kubeconfig and in-cluster credentials, requests with deadlines and safe retries, chunked lists, watches, patches,
 * the translation of every failure to {@link KubeError}. Does not know: caches (see `#kube/informer`), controllers, CRDs.
 *
 * ```ts
 * await using client = new KubeClient(await loadKubeConfig({ clock }), { clock });
 * const node = await client.get(resources.nodes, { name: "node1" }, { signal });
 * for await (const event of client.watch(resources.pods, { namespace: "default", signal })) {
 *   if (event.type === "DELETED") log.info("pod gone", { pod: event.object.metadata.name });
 * }
 * ```
 */
export type * from "./api.ts";
export { findObject, KubeClient, type KubeClientOptions } from "./client.ts";
export { type KubeConnection, type KubeCredentials, staticConnection } from "./connection.ts";
export {
  type ApiFailure,
  isApiFailure,
  isAway,
  isKubeError,
  KUBE_CONFIG_ERROR_CODES,
  KUBE_ERROR_CODES,
  KubeConfigError,
  type KubeConfigErrorCode,
  KubeError,
  type KubeErrorCode,
} from "./errors.ts";
export { loadKubeConfig } from "./load.ts";
export {
  apiVersionOf,
  type Draft,
  type KubeObject,
  type ObjectRef,
  objectKey,
  parseObjectKey,
  type ResourceType,
  resourceName,
  resourceType,
  type Stored,
  type StoredMeta,
} from "./resource.ts";
export * from "./resources.ts";
export type { PortState, ServerAddress } from "./server-port.ts";
export type { RequestSample } from "./transport.ts";
