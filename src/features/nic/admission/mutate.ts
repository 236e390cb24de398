import type { JsonPatchOperation } from "#kube/client";
import {
  LEGACY_NICS_ANNOTATION,
  LEGACY_VPC_ANNOTATION,
  type NamedNic,
  NICS_ANNOTATION,
  NICS_GATE,
  type NicPolicySpec,
  VPC_ANNOTATION,
} from "#kube/nic";
import type { AdmissionAnswer, AdmissionRequest } from "#kube/webhook";
import { type PodNics, readPodNics } from "../fields/pod.ts";
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
 * Arktos, and without a status that nobody but the controller can know. A new pod with NICs gets the scheduling gate if the policy says so, and one
 * without NICs has none. A faulty pod is left as it is, for the validation. Pure.
 */
export function mutatePod(request: AdmissionRequest, world: Pick<NicWorld, "namespaces" | "policy">): AdmissionAnswer {
  const pods = reviewedPods(request);
  if (pods === undefined) return { allowed: true };
  const { pod, old } = pods;
  const wanted = new Map<string, string | undefined>();
  const namespace = world.namespaces.get(request.namespace ?? "");
  if (old === undefined) for (const key of STATUS_ANNOTATIONS) wanted.set(key, undefined);
  if (old === undefined || !hasSameWish(pod, old)) {
    for (const [key, value] of normalForm(pod, old, namespace)) wanted.set(key, value);
  }
  const gate = old === undefined ? gatePatch(pod, readPodNics(pod, defaultVpcOf(namespace)).kind, world.policy) : [];
  return { allowed: true, patch: [...patchOf(pod, wanted), ...gate] };
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

/** The operations that give a new pod the scheduling gate, or take one away that nobody would remove. */
function gatePatch(
  { spec }: ReviewedPod,
  kind: PodNics["kind"],
  { schedulingGate = false }: NicPolicySpec,
): JsonPatchOperation[] {
  const gates = spec?.schedulingGates ?? [];
  const at = gates.findIndex(({ name }) => name === NICS_GATE);
  if (kind === "none" || kind === "host-network") {
    return at < 0 ? [] : [{ op: "remove", path: `/spec/schedulingGates/${at}` }];
  }
  // A pod with a node was never scheduled, and may have no gate.
  if (kind !== "wanted" || !schedulingGate || at >= 0 || (spec?.nodeName ?? "") !== "") return [];
  const gate = { name: NICS_GATE };
  return gates.length === 0
    ? [{ op: "add", path: "/spec/schedulingGates", value: [gate] }]
    : [{ op: "add", path: "/spec/schedulingGates/-", value: gate }];
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
