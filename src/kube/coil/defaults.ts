import type { JsonPatchOperation } from "#kube/client";
import { COIL_FINALIZER } from "./keys.ts";
import { podSpecFaults, ROUTER_CONTAINER } from "./pod-template.ts";
import type { EgressPodTemplate } from "./types.ts";

/** The addition of the pool's mutating webhook on create: the finalizer (docs/spec/pod-network.md#2.6). Empty if the pool has it. */
export function poolDefaults(pool: {
  readonly metadata: { readonly finalizers?: readonly string[] | null };
}): JsonPatchOperation[] {
  const finalizers = pool.metadata.finalizers ?? [];
  if (finalizers.length === 0) {
    return [{ op: "add", path: "/metadata/finalizers", value: [COIL_FINALIZER] }];
  }
  if (finalizers.includes(COIL_FINALIZER)) return [];
  return [{ op: "add", path: "/metadata/finalizers/-", value: COIL_FINALIZER }];
}

/**
 * The addition of the egress's mutating webhook on create: the router container, if the template has no containers
 * (docs/spec/pod-network.md#2.5).
 */
export function egressDefaults(egress: {
  readonly spec?: { readonly template?: EgressPodTemplate };
}): JsonPatchOperation[] {
  const template = egress.spec?.template;
  if (template === undefined || podSpecFaults(template.spec).length > 0) return [];
  if ((template.spec?.containers?.length ?? 0) > 0) return [];
  const container = { name: ROUTER_CONTAINER };
  if (template.spec === undefined)
    return [{ op: "add", path: "/spec/template/spec", value: { containers: [container] } }];
  return [{ op: "add", path: "/spec/template/spec/containers", value: [container] }];
}
