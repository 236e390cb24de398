import { type FieldFault, forbidden, required, tooMany } from "#kube/crd";
import { type NicClaim, REQUIRE_VPC_LABEL, VPC_ANNOTATION } from "#kube/nic";
import { type AdmissionAnswer, type AdmissionRequest, denyInvalid } from "#kube/webhook";
import { annotationPath } from "../fields/annotation.ts";
import { type PodNics, readPodNics, type WantedNics } from "../fields/pod.ts";
import { updateFaults } from "../fields/update.ts";
import { countedPorts, nicLimit, type Tenant, tenantOf, vpcAccess } from "./policy.ts";
import {
  annotationOf,
  defaultVpcOf,
  hasSameWish,
  type NicWorld,
  type ReviewedPod,
  reviewedPods,
  STATUS_ANNOTATIONS,
} from "./reviewed-pod.ts";

/** The facts that the validation reads beside a request. */
export interface PodValidation {
  readonly world: NicWorld;
  /** The user name of the controller, the only one who writes the annotations of the status. */
  readonly controllerUser: string;
  /** True if the caller has proved that it is an API server. Others are told no limit, no tenant's name and no number of ports. */
  readonly isProven: boolean;
}

const NOT_TOLD = "its administrator knows how many";

/**
 * Checks a pod and its change (docs/spec/vpc-nics.md#4): fields, update rules, VPC of the namespace, limits and quota. Pure: nothing of a review is remembered, as
 * anybody who reaches the port can send one. Of pods that are admitted together the controller gives ports to those that fit the quota.
 */
export function validatePod(request: AdmissionRequest, context: PodValidation): AdmissionAnswer {
  const pods = reviewedPods(request);
  if (pods === undefined) return { allowed: true };
  const { pod, old } = pods;
  const faults = statusFaults(pod, old, request.userInfo.username === context.controllerUser);
  if (old !== undefined && hasSameWish(pod, old)) return verdict(request, faults);
  const namespace = context.world.namespaces.get(request.namespace ?? "");
  const nics = readPodNics(pod, defaultVpcOf(namespace));
  const before = old === undefined ? undefined : readPodNics(old, defaultVpcOf(namespace));
  if (old === undefined && namespace?.labels?.[REQUIRE_VPC_LABEL] === "true" && !namesVpc(pod, nics)) {
    faults.push(required(annotationPath(VPC_ANNOTATION), "this namespace only admits VPC pods"));
  }
  switch (nics.kind) {
    case "faulty":
      return verdict(request, [...faults, ...nics.faults]);
    case "none":
      if (before?.kind === "wanted") faults.push(forbidden("vpc", "may not change"));
      return verdict(request, faults);
    case "host-network":
      return verdict(request, faults, [
        `${annotationPath(VPC_ANNOTATION)}: the pod has the network of its node, so it gets no ports`,
      ]);
    case "wanted":
      return judge(request, { nics, before, pod, faults }, context);
  }
}

interface Judged {
  readonly nics: WantedNics;
  readonly before: PodNics | undefined;
  readonly pod: ReviewedPod;
  readonly faults: FieldFault[];
}

/** The rules that need the policy and the claims. */
function judge(
  request: AdmissionRequest,
  { nics, before, pod, faults }: Judged,
  { world, isProven }: PodValidation,
): AdmissionAnswer {
  const { policy } = world;
  const namespace = request.namespace ?? "";
  const podUID = pod.metadata?.uid;
  const claim = podUID === undefined ? undefined : world.claims.get(namespace, podUID);
  if (before?.kind === "none") faults.push(forbidden("vpc", "may not change"));
  else if (before?.kind === "wanted") {
    const context = { hotplug: policy.hotplug === true, allNamed: nics.allNamed, assigned: portsByName(claim) };
    faults.push(...updateFaults(before, nics, context));
  }
  const old = before?.kind === "wanted" ? before : undefined;
  if (old?.vpc !== nics.vpc && !vpcAccess(policy, nics.vpc, namespace).isAllowed) {
    const why = `VPC ${JSON.stringify(nics.vpc)} is not available in namespace ${JSON.stringify(namespace)}`;
    faults.push(forbidden(annotationPath(VPC_ANNOTATION), why));
  }
  const tenant = tenantOf(policy, namespace, world.namespaces.get(namespace));
  const grows = nics.nics.length > (old?.nics.length ?? 0);
  if (grows || old?.vm?.flavor !== nics.vm?.flavor) {
    const { maxNics, because } = nicLimit(policy, nics.vm, tenant);
    const why = isProven ? `${because} at most ${maxNics}` : `more than the NIC policy allows here; ${NOT_TOLD}`;
    if (nics.nics.length > maxNics) faults.push(tooMany("nics", nics.nics.length, why));
  }
  if (!grows || tenant?.maxPorts === undefined) return verdict(request, faults);
  const ports = nics.nics.length;
  const used = claimedPorts(world, tenant, claim);
  if (used + ports > tenant.maxPorts) {
    const numbers = `tenant ${JSON.stringify(tenant.name)} would use ${used + ports} ports of ${tenant.maxPorts}`;
    faults.push(
      forbidden("nics", isProven ? numbers : `more ports than this namespace's tenant has left; ${NOT_TOLD}`),
    );
  }
  return verdict(request, faults);
}

/** The ports of a tenant's claims, without one claim. */
function claimedPorts({ policy, namespaces, claims }: NicWorld, tenant: Tenant, except: NicClaim | undefined): number {
  const isOfTenant = new Map<string, boolean>();
  let ports = 0;
  for (const claim of claims.values()) {
    const { namespace = "", uid } = claim.metadata;
    const known = isOfTenant.get(namespace) ?? tenantOf(policy, namespace, namespaces.get(namespace)) === tenant;
    isOfTenant.set(namespace, known);
    if (known && uid !== except?.metadata.uid) ports += countedPorts(claim);
  }
  return ports;
}

function portsByName(claim: NicClaim | undefined): ReadonlyMap<string, string> {
  const ports = new Map<string, string>();
  for (const { name, portID } of claim?.status?.nics ?? []) if (portID !== undefined) ports.set(name, portID);
  return ports;
}

/** A pod with the network of its node may name a VPC, which shows that its fields were not lost. */
function namesVpc(pod: ReviewedPod, nics: PodNics): boolean {
  return nics.kind === "wanted" || nics.kind === "faulty" || annotationOf(pod, VPC_ANNOTATION) !== undefined;
}

function statusFaults(pod: ReviewedPod, old: ReviewedPod | undefined, isController: boolean): FieldFault[] {
  if (isController) return [];
  return STATUS_ANNOTATIONS.filter(
    (key) => annotationOf(pod, key) !== (old === undefined ? undefined : annotationOf(old, key)),
  ).map((key) => forbidden(annotationPath(key), "only the network controller writes it"));
}

function verdict(
  request: AdmissionRequest,
  faults: readonly FieldFault[],
  warnings: readonly string[] = [],
): AdmissionAnswer {
  return faults.length === 0 ? { allowed: true, warnings } : { ...denyInvalid(request, faults), warnings };
}
