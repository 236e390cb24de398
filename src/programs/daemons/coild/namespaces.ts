import type { Clock } from "#base/clock";
import type { Health } from "#base/health";
import { type AccessNamespace, accessNamespace } from "#features/egress";
import { ALLOWED_SOURCES } from "#features/source-guard";
import { type KubeApi, type Namespace, resources, type StoredMeta } from "#kube/client";
import { POOL_ANNOTATION } from "#kube/coil";
import { createInformer, type Informer, type ObjectSteps } from "#kube/informer";

const KEPT = [POOL_ANNOTATION, ALLOWED_SOURCES];

/** A Namespace as coild keeps it: the pool of its pods, the sources that they may use, and what the rules of Egresses need. */
export interface KnownNamespace extends AccessNamespace {
  /** The annotations are these two alone. */
  readonly metadata: Pick<StoredMeta, "name" | "uid" | "resourceVersion" | "annotations">;
}

/**
 * The Namespaces of the cluster. The caller runs it. Its first list is consistent: an older state would change running pods. An ADD that finds no Namespace
 * here reads it live.
 */
export function namespaceInformer(
  api: KubeApi,
  {
    health,
    steps,
    clock,
  }: { readonly health: Health; readonly steps?: ObjectSteps | undefined; readonly clock: Clock },
): Informer<Namespace, KnownNamespace> {
  const part = health.part("watch-namespaces");
  // The program is ready without it: pods whose pool and Egresses need none of it start.
  part.ok();
  return createInformer(api, resources.namespaces, {
    transform: (namespace): KnownNamespace => {
      const { name, uid, resourceVersion, annotations } = namespace.metadata;
      const own = KEPT.flatMap((key) => (annotations?.[key] === undefined ? [] : [[key, annotations[key]]]));
      const kept = own.length === 0 ? {} : { annotations: Object.fromEntries(own) };
      return { ...accessNamespace(namespace), metadata: { name, uid, resourceVersion, ...kept } };
    },
    onHealth: (state) => (state.state === "ready" ? part.ok() : part.degraded(state.error)),
    steps,
    clock,
  });
}
