import type { JsonPatchOperation } from "#kube/client";
import {
  LEGACY_NICS_ANNOTATION,
  LEGACY_VPC_ANNOTATION,
  type NamedNic,
  NICS_ANNOTATION,
  VPC_ANNOTATION,
} from "#kube/nic";
import type { AdmissionAnswer, AdmissionRequest } from "#kube/webhook";
import { readPodNics } from "../fields/pod.ts";
import {
  annotationOf,
  defaultVpcOf,
  hasSameWish,
  type NicWorld,
  type ReviewedPod,
  reviewedPods,
  STATUS_ANNOTATIONS,
} from "./reviewed-pod.ts";

/**
 * Brings a pod's annotations into normal form (docs/spec/vpc-nics.md#4): canonical fields with defaults under our own keys, without those of
 * Arktos, and without a status that nobody but the controller can know. A faulty pod is left as it is, for the validation. Pure.
 */
export function mutatePod(request: AdmissionRequest, world: Pick<NicWorld, "namespaces">): AdmissionAnswer {
  const pods = reviewedPods(request);
  if (pods === undefined) return { allowed: true };
  const { pod, old } = pods;
  const wanted = new Map<string, string | undefined>();
  if (old === undefined) for (const key of STATUS_ANNOTATIONS) wanted.set(key, undefined);
  if (old === undefined || !hasSameWish(pod, old)) {
    for (const [key, value] of normalForm(pod, old, world.namespaces.get(request.namespace ?? "")))
      wanted.set(key, value);
  }
  return { allowed: true, patch: patchOf(pod, wanted) };
}

/** The annotations that a pod should have; `undefined` for one that it should not have. */
function normalForm(
  pod: ReviewedPod,
  old: ReviewedPod | undefined,
  namespace: ReturnType<NicWorld["namespaces"]["get"]>,
): readonly (readonly [string, string | undefined])[] {
  const context = defaultVpcOf(namespace);
  const nics = readPodNics(pod, context);
  if (nics.kind !== "wanted") return [];
  if (old !== undefined && !nics.allNamed) {
    // NICs can be added to a running pod only with their names: the validation must see that they have none.
    const before = readPodNics(old, context);
    if (before.kind === "wanted" && namesOf(before.nics) !== namesOf(nics.nics)) return [];
  }
  return [
    [VPC_ANNOTATION, nics.vpc],
    [NICS_ANNOTATION, JSON.stringify(nics.nics)],
    [LEGACY_VPC_ANNOTATION, undefined],
    [LEGACY_NICS_ANNOTATION, undefined],
  ];
}

function namesOf(nics: readonly NamedNic[]): string {
  return nics
    .map(({ name }) => name)
    .sort()
    .join();
}

/** The operations that give a pod annotations, which it has already some of. */
function patchOf(pod: ReviewedPod, wanted: ReadonlyMap<string, string | undefined>): JsonPatchOperation[] {
  const patch: JsonPatchOperation[] = [];
  for (const [key, value] of wanted) {
    const present = annotationOf(pod, key);
    const path = `/metadata/annotations/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`;
    if (value === present) continue;
    if (value !== undefined) patch.push({ op: "add", path, value });
    else patch.push({ op: "remove", path });
  }
  return patch;
}
