import type { AbortOptions } from "#base/async";
import { poll } from "#base/async";
import { systemClock } from "#base/clock";
import {
  type CustomResourceDefinition,
  type Draft,
  findObject,
  isKubeError,
  type KubeApi,
  type KubeObject,
  type ResourceType,
  resourceName,
  resources,
} from "#kube/client";
import { coilCrds, coilResources } from "#kube/coil";
import type { CrdManifest } from "#kube/crd";
import { nicCrds, nicResources } from "#kube/nic";
import { machineCapacity, type NodeSettings, nodeDraft, nodeStatus } from "#lab/kubelet";
import {
  type BlockController,
  CONTROLLER_LEASE,
  createOwn,
  type LabIdentity,
  nodeTaints,
  ownLabels,
} from "#lab/ownership";
import type { LabNode, Topology } from "#lab/topology";
import { LabError } from "./errors.ts";

/** Maximum time until an API server serves a new type, in milliseconds. */
const SERVED_MS = 30_000;
const LOOK_MS = 100;

/** The API types that a lab needs. A guest leaves out the unused one. */
export function labCrds({ isGuest }: LabIdentity, vpc = false): readonly CrdManifest[] {
  const unused = resourceName(coilResources.egresses);
  if (isGuest) return coilCrds.filter(({ metadata }) => metadata.name !== unused);
  return vpc ? [...coilCrds, ...nicCrds] : coilCrds;
}

/** Creates the missing API types of the suite and the lab's Nodes. Rejects with `KubeError`, `OwnershipError`. */
export async function prepareCluster(
  api: KubeApi,
  at: {
    readonly topology: Topology;
    readonly identity: LabIdentity;
    readonly blocks: BlockController;
    /** True if pods can have NICs of a VPC. Default false. */
    readonly vpc?: boolean;
    /** The API types in place of those of this build. */
    readonly crds?: readonly CrdManifest[] | undefined;
  },
  options: AbortOptions,
): Promise<void> {
  const { topology, identity, vpc = false } = at;
  const crds = at.crds ?? labCrds(identity, vpc);
  if (identity.isGuest && at.blocks === "own") await claimBlocks(api, identity, options);
  for (const crd of crds) {
    const { name } = crd.metadata;
    const found = await findObject(api, resources.customResourceDefinitions, { name }, options);
    // The survey has already checked a type that the cluster had before.
    if (found !== undefined) continue;
    const draft = crd as unknown as Draft<CustomResourceDefinition>;
    await createOwn(api, identity, resources.customResourceDefinitions, draft, options);
  }
  await Promise.all(crds.map((crd) => untilServed(api, crd, options)));
  await Promise.all(topology.nodes.map((node) => makeNode(api, nodeSettings(node, identity), identity, options)));
}

/**
 * Keeps other controllers from carving blocks while the lab does: two nodes could get the same block. Rejects with `OwnershipError` if
 * another controller was faster.
 */
async function claimBlocks(api: KubeApi, identity: LabIdentity, options: AbortOptions): Promise<void> {
  const renewTime = new Date(systemClock.now()).toISOString().replace("Z", "000Z");
  // The Lease has no holder, so that the lab's controller can acquire it.
  const spec = { holderIdentity: "", leaseDurationSeconds: 1, renewTime };
  await createOwn(api, identity, resources.leases, { metadata: { ...CONTROLLER_LEASE }, spec }, options);
}

/** The settings that the kubelet of a node reports. */
export function nodeSettings({ name, addresses }: LabNode, identity: LabIdentity): NodeSettings {
  return { name, addresses: addresses.map(String), labels: ownLabels(identity), taints: nodeTaints(identity) };
}

async function makeNode(
  api: KubeApi,
  settings: NodeSettings,
  identity: LabIdentity,
  options: AbortOptions,
): Promise<void> {
  const { name } = settings;
  await createOwn(api, identity, resources.nodes, nodeDraft(settings), options);
  const status = nodeStatus(settings, machineCapacity(), systemClock.now());
  // A merge of the whole list: a strategic merge would use the type of an address as the key, and both families have the same type.
  await api.patch(
    resources.nodes,
    { name },
    { type: "merge", body: { status } },
    { ...options, subresource: "status" },
  );
}

/** Waits until the API server serves the type: it accepts a definition earlier than it serves the type. */
async function untilServed(api: KubeApi, crd: CrdManifest, { signal }: AbortOptions): Promise<void> {
  const type: ResourceType<KubeObject> | undefined = Object.values<ResourceType<KubeObject>>({
    ...coilResources,
    ...nicResources,
  }).find((one) => resourceName(one) === crd.metadata.name);
  if (type === undefined) return;
  const isServed = async (): Promise<boolean> => {
    try {
      await api.list(type, { limit: 1, signal });
      return true;
    } catch (error) {
      if (isKubeError(error, "not-found", "too-many-requests")) return false;
      throw error;
    }
  };
  const served = await poll(isServed, {
    until: (is) => is,
    everyMs: LOOK_MS,
    deadlineMs: SERVED_MS,
    signal,
    clock: systemClock,
  });
  if (!served)
    throw new LabError(
      "start-failed",
      `the API server does not serve ${crd.metadata.name} after ${SERVED_MS / 1000} s`,
    );
}
