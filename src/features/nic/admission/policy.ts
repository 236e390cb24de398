import { CLOUDS } from "#cloud/vpc";
import { MAX_NICS, type NicClaim, type NicPolicySpec } from "#kube/nic";
import type { VmWish } from "../fields/vm.ts";

/** The most NICs of a pod with containers where the policy does not say. */
const DEFAULT_CONTAINER_NICS = 4;
/** The most NICs of a virtual machine of a flavor that the policy does not know. */
const DEFAULT_UNKNOWN_FLAVOR_NICS = 1;

/** The part of a Namespace that rules read. */
export interface NamespaceView {
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly annotations?: Readonly<Record<string, string>> | undefined;
}

/** One tenant of a policy. */
export type Tenant = NonNullable<NicPolicySpec["tenants"]>[number];
/** One binding of a VPC of a policy. */
export type VpcBinding = NonNullable<NicPolicySpec["vpcBindings"]>[number];

/** A limit of NICs, and whose it is, for messages. */
export interface NicLimit {
  readonly maxNics: number;
  /** Such as `flavor "m1.small" allows`. */
  readonly because: string;
}

/** The first tenant that selects a namespace; an empty selector selects none. */
export function tenantOf(
  { tenants = [] }: NicPolicySpec,
  namespace: string,
  { labels = {} }: NamespaceView = {},
): Tenant | undefined {
  return tenants.find(({ selector: { names = [], matchLabels = {} } }) => {
    const wanted = Object.entries(matchLabels);
    return names.includes(namespace) || (wanted.length > 0 && wanted.every(([key, value]) => labels[key] === value));
  });
}

/** The lowest limit of a pod: of its kind, of its tenant, and of all pods (docs/spec/vpc-nics.md#4). */
export function nicLimit(policy: NicPolicySpec, vm: VmWish | undefined, tenant: Tenant | undefined): NicLimit {
  const limits = [kindLimit(policy, vm)];
  if (tenant?.maxNics !== undefined) {
    limits.push({ maxNics: tenant.maxNics, because: `tenant ${JSON.stringify(tenant.name)} allows` });
  }
  const start: NicLimit = { maxNics: MAX_NICS, because: "a pod has" };
  return limits.reduce((least, one) => (one.maxNics < least.maxNics ? one : least), start);
}

function kindLimit({ containers, flavors = {}, unknownFlavor }: NicPolicySpec, vm: VmWish | undefined): NicLimit {
  if (vm === undefined) {
    return { maxNics: containers?.maxNics ?? DEFAULT_CONTAINER_NICS, because: "a pod with containers has" };
  }
  const { flavor } = vm;
  const known = flavor !== undefined && Object.hasOwn(flavors, flavor) ? flavors[flavor] : undefined;
  const because =
    flavor === undefined ? "a virtual machine without a flavor has" : `flavor ${JSON.stringify(flavor)} allows`;
  if (known !== undefined) return { maxNics: known.maxNics ?? MAX_NICS, because };
  return { maxNics: unknownFlavor?.maxNics ?? DEFAULT_UNKNOWN_FLAVOR_NICS, because };
}

/** The answer if a namespace may use a VPC, and the binding that says so. Webhook and controller both ask. */
export type VpcAccess =
  | { readonly isAllowed: true; readonly binding: VpcBinding | undefined }
  /** `why` is for the operator alone, where the policy has to be mended. */
  | { readonly isAllowed: false; readonly why?: string };

/**
 * Returns if a namespace may use a VPC (docs/spec/vpc-nics.md#3.4): one of a binding for it, or any where the policy says so. As soon as one binding names
 * namespaces, a VPC without a binding is available nowhere: a pod could otherwise name a restricted VPC by its id instead of its name. A binding by name
 * without a project binds nothing: whoever makes networks in any project could take the name.
 */
export function vpcAccess(policy: NicPolicySpec, vpc: string, namespace: string): VpcAccess {
  const { vpcBindings = [] } = policy;
  const isFor = ({ namespaces = [] }: VpcBinding): boolean => namespaces.length === 0 || namespaces.includes(namespace);
  const bindings = vpcBindings.filter((binding) => binding.vpc === vpc);
  if (bindings.length > 0) {
    const own = bindings.filter(isFor);
    const binding = own.find((one) => allowsUnbound(policy) || !isOfAnyProject(policy, one));
    if (binding !== undefined) return { isAllowed: true, binding };
    if (own.length === 0) return { isAllowed: false };
    return {
      isAllowed: false,
      why: `its binding in NicPolicy default has no projectID, and ${JSON.stringify(vpc)} is a name`,
    };
  }
  return allowsUnbound(policy) ? { isAllowed: true, binding: undefined } : { isAllowed: false };
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * Returns true if a binding means a network of its name in any project: it has a name and no project, and its provider looks for it in all of them. A provider
 * that is not known, or of no known kind, counts as one that does. Pure.
 */
export function isOfAnyProject({ providers = [] }: NicPolicySpec, { vpc, provider, projectID }: VpcBinding): boolean {
  if (projectID !== undefined || UUID.test(vpc)) return false;
  const only = providers.length === 1 ? providers[0] : providers.find((one) => one.default === true);
  const entry = provider === undefined ? only : providers.find(({ name }) => name === provider);
  // The provider of a policy that names none is one of Neutron.
  const { type, config = {} } = entry ?? { type: "neutron" };
  return CLOUDS.find((cloud) => cloud.type === type)?.hasNamesOfAnyProject(config) ?? true;
}

/** Returns true if a VPC that no binding names is available to every namespace. */
export function allowsUnbound({ allowUnboundVPCs, vpcBindings = [] }: NicPolicySpec): boolean {
  return allowUnboundVPCs === true && vpcBindings.every(({ namespaces = [] }) => namespaces.length === 0);
}

/**
 * The ports that count for a tenant's quota: all of a claim, unless it is being released, with those of NICs that its pod has given up and that are
 * not released yet. A failed claim may have ports.
 */
export function countedPorts({ metadata, spec, status }: NicClaim): number {
  const isReleasing = status?.phase === "Releasing" || metadata.deletionTimestamp !== undefined;
  return isReleasing ? 0 : new Set([...spec.nics, ...(status?.nics ?? [])].map(({ name }) => name)).size;
}
