import type { AbortOptions } from "#base/async";
import { Cidr, IpAddress } from "#base/ip";
import {
  findObject,
  isKubeError,
  type KubeApi,
  type KubeObject,
  type ObjectRef,
  type Pod,
  type ResourceType,
  resources,
} from "#kube/client";
import { type AddressBlock, coilResources, egressLabels, ROUTER_ACCOUNT } from "#kube/coil";
import {
  ADDRESSES,
  COILD,
  EGRESSES,
  type InstalledObject,
  NIC_CLAIMS,
  type OwnKind,
  PART_OF,
  RIGHTS,
  TYPES,
  WEBHOOKS,
  WORKLOADS,
} from "./cluster-objects.ts";

type AnyType = ResourceType<KubeObject>;

/** An object that is removed. */
export interface ClusterRemoval {
  readonly type: AnyType;
  readonly ref: ObjectRef;
  /** As `delete DaemonSet kube-system/coild`. */
  readonly what: string;
  readonly why: string;
  /** A finalizer of the suite that is taken off. */
  readonly finalizer: string | undefined;
  /** It is removed when the programs of nodes have ended: they act on its absence. */
  readonly isAfterPrograms: boolean;
  /** It is removed when no router of an Egress is left: their interfaces are removed by it. */
  readonly isAfterRouters: boolean;
}

/** The removals of a cluster, in their order. */
export interface ClusterPlan {
  readonly removals: readonly ClusterRemoval[];
  readonly refused: readonly string[];
  readonly kept: readonly string[];
  /** The objects that are left although they should not be, each with its remedy. */
  readonly unfinished: readonly string[];
}

/** The objects of the suite in a cluster. */
export interface ClusterFacts {
  readonly webhooks: readonly ClusterRemoval[];
  readonly egresses: readonly ClusterRemoval[];
  readonly workloads: readonly ClusterRemoval[];
  readonly rights: readonly ClusterRemoval[];
  readonly addresses: readonly ClusterRemoval[];
  readonly types: readonly ClusterRemoval[];
  /** NICs of pods, as `namespace/name`. */
  readonly claims: readonly string[];
  /** Pods with addresses of blocks, other than routers of Egresses, as `namespace/name`. */
  readonly clients: readonly string[];
  /** Workloads with the image of Coil itself, whose objects have the names of ours, as `DaemonSet kube-system/coild (ghcr.io/cybozu-go/coil:2.15.0)`. */
  readonly coils: readonly string[];
  /** Objects that have a name of ours and not our label, as `DaemonSet kube-system/proxy-agent`. */
  readonly foreign: readonly string[];
}

/** Reads what a cluster has of the suite. Changes nothing. Rejects with `KubeError`. */
export async function readCluster(api: KubeApi, options: AbortOptions): Promise<ClusterFacts> {
  const foreign: string[] = [];
  const coils: string[] = [];
  const named = async (all: readonly InstalledObject[], why: string): Promise<readonly ClusterRemoval[]> => {
    const found: ClusterRemoval[] = [];
    for (const { type, namespace, name, isMarked } of all) {
      const ref = namespace === undefined ? { name } : { namespace, name };
      const object = await findObject(api, type, ref, options);
      if (object === undefined) continue;
      coils.push(...imagesOfCoil(object).map((image) => `${textOf(type, ref)} (${image})`));
      if (isMarked && object.metadata.labels?.[PART_OF.label] !== PART_OF.value) foreign.push(textOf(type, ref));
      else found.push(removal(type, ref, why));
    }
    return found;
  };
  const listed = async ({ type, finalizer }: OwnKind): Promise<readonly ClusterRemoval[]> => {
    const objects = await listIfServed(api, type, options);
    return objects.map((ref) => removal(type, ref, `of a type of this suite`, finalizer));
  };
  return {
    webhooks: await named(WEBHOOKS, "its server ends"),
    egresses: await listed(EGRESSES),
    workloads: (await named(WORKLOADS, "workload of deploy/")).map((one) =>
      one.ref.name === COILD ? { ...one, isAfterRouters: true } : one,
    ),
    rights: [
      ...(await named(RIGHTS, "account, right or setting of deploy/")),
      ...(await accountsOfRouters(api, options)),
    ],
    addresses: (await Promise.all(ADDRESSES.map(listed))).flat().map(afterPrograms),
    types: (await named(TYPES, "API type of this suite")).map(afterPrograms),
    clients: await podsWithAddresses(api, options),
    claims: (await listIfServed(api, NIC_CLAIMS, options)).map(({ namespace, name }) => `${namespace}/${name}`),
    coils,
    foreign,
  };
}

/** The images of Coil itself that a workload runs, by the last part of their names. */
function imagesOfCoil(object: KubeObject): readonly string[] {
  const { spec } = object as KubeObject & {
    readonly spec?: {
      readonly template?: { readonly spec?: { readonly containers?: readonly { readonly image?: string }[] } };
    };
  };
  const images = (spec?.template?.spec?.containers ?? []).map(({ image = "" }) => image);
  return images.filter((image) => /(^|\/)coil[:@]/.test(image));
}

/**
 * Pure: the removals of a cluster. Webhooks come first, so that no write waits for a server that has ended; the API types come last. With
 * `keepPools` types and addresses stay for a later installation.
 */
export function planCluster(facts: ClusterFacts, { keepPools }: { readonly keepPools: boolean }): ClusterPlan {
  const { webhooks, egresses, workloads, rights, addresses, types, claims, clients, coils, foreign } = facts;
  const last = [...addresses, ...types];
  return {
    removals: [...webhooks, ...egresses, ...workloads, ...rights, ...(keepPools ? [] : last)],
    refused: [
      ...(coils.length === 0
        ? []
        : [
            `Coil itself runs here: ${coils.join(", ")}; its objects have the names of ours, and all of them would be removed`,
          ]),
      ...(claims.length === 0
        ? []
        : [
            `pods have ${claims.length} NICs of VPCs (${claims.slice(0, 3).join(", ")}): delete these pods while nic-controller runs, which gives their ports back`,
          ]),
    ],
    unfinished:
      clients.length === 0
        ? []
        : [
            `${clients.length} pods have addresses and links of coild (${clients.slice(0, 3).join(", ")}): they run on, but none of them can end while its node has neither coild nor another network; delete them before, or after that their links with isthmus uninstall --pods on each node`,
          ],
    kept: [
      ...foreign.map((text) => `${text}: it does not have the label ${PART_OF.label}=${PART_OF.value}`),
      ...(keepPools ? last.map(({ type, ref }) => `${type.kind} ${ref.name}: --keep-pools`) : []),
    ],
  };
}

function removal(type: AnyType, ref: ObjectRef, why: string, finalizer?: string): ClusterRemoval {
  const what = `delete ${textOf(type, ref)}`;
  return { type, ref, what, why, finalizer, isAfterPrograms: false, isAfterRouters: false };
}

/** The accounts that `coil-egress-controller` makes, one in each namespace that has or had an Egress; nobody else removes them. */
async function accountsOfRouters(api: KubeApi, { signal }: AbortOptions): Promise<readonly ClusterRemoval[]> {
  const type = resources.serviceAccounts as AnyType;
  const { items } = await api.listAll(type, { signal, fieldSelector: `metadata.name=${ROUTER_ACCOUNT}` });
  return items.map(({ metadata: { namespace = "", name } }) =>
    removal(type, { namespace, name }, "account of the routers of Egresses"),
  );
}

/** Pods that have addresses of blocks, except routers of Egresses, which end with these. */
async function podsWithAddresses(api: KubeApi, { signal }: AbortOptions): Promise<readonly string[]> {
  const blocks = await listServed<AddressBlock>(api, coilResources.addressBlocks, { signal });
  const ranges = blocks.flatMap(({ ipv4, ipv6 }) => [ipv4, ipv6].flatMap((text = "") => Cidr.tryParse(text) ?? []));
  if (ranges.length === 0) return [];
  const { items } = await api.listAll<Pod>(resources.pods, { signal });
  return items.flatMap(({ metadata: { namespace = "", name, labels = {} }, status: { podIPs = [] } = {} }) => {
    const addresses = podIPs.flatMap(({ ip = "" }) => IpAddress.tryParse(ip) ?? []);
    const isClient = addresses.some((address) => ranges.some((range) => range.contains(address)));
    const ofRouter = egressLabels(labels["app.kubernetes.io/instance"] ?? "");
    const isRouter = Object.entries(ofRouter).every(([key, value]) => labels[key] === value);
    return isClient && !isRouter ? [`${namespace}/${name}`] : [];
  });
}

function afterPrograms(one: ClusterRemoval): ClusterRemoval {
  return { ...one, isAfterPrograms: true };
}

function textOf({ kind }: AnyType, { name, namespace }: ObjectRef): string {
  return `${kind} ${namespace === undefined ? name : `${namespace}/${name}`}`;
}

/** Returns the objects that {@link listServed} finds, by name. */
async function listIfServed(api: KubeApi, type: AnyType, options: AbortOptions): Promise<readonly ObjectRef[]> {
  const items = await listServed(api, type, options);
  return items.map(({ metadata: { namespace, name } }) => (namespace === undefined ? { name } : { namespace, name }));
}

/** The objects of a type; none on a cluster without the type. */
async function listServed<T extends KubeObject>(
  api: KubeApi,
  type: ResourceType<T>,
  { signal }: AbortOptions,
): Promise<readonly T[]> {
  try {
    return (await api.listAll(type, { signal })).items;
  } catch (error) {
    if (isKubeError(error, "not-found")) return [];
    throw error;
  }
}
