import type { AbortOptions } from "#base/async";
import type { KubeApi, KubeObject, ResourceType } from "#kube/client";

const FIELD_MANAGER = "isthmus-lab";

/** A manifest as people write it: with what says which object it is. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly [field: string]: unknown };
  readonly [field: string]: unknown;
}

/** Server-side apply in the lab's name: repeating it changes nothing. Rejects with `KubeError`. */
export async function applyObject<T extends KubeObject>(
  api: KubeApi,
  type: ResourceType<T>,
  body: Manifest,
  options: AbortOptions,
): Promise<void> {
  const { name, namespace } = body.metadata;
  await api.patch(
    type,
    { name, namespace },
    { type: "apply", body, fieldManager: FIELD_MANAGER, force: true },
    options,
  );
}
