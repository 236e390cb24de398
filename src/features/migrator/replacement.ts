import { Cidr, IpAddress } from "#base/ip";
import type { Pod } from "#kube/client";
import { type AddressBlock, NODE_LABEL, RESERVED_LABEL } from "#kube/coil";

/** A pod that is to be replaced. */
export interface PodRef {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** The kubelet made the object for a static pod, and makes it again when it is deleted; the pod itself stays. */
  readonly isMirror: boolean;
}

const MIRROR_ANNOTATION = "kubernetes.io/config.mirror";

/** The reference of a pod. Pure. */
export function refOf({ metadata }: Pod): PodRef {
  const { namespace = "", name, uid, annotations } = metadata;
  return { namespace, name, uid, isMirror: annotations?.[MIRROR_ANNOTATION] !== undefined };
}

/** A reserved block that must stay, and the pods that still use it. */
export interface HeldBlock {
  readonly block: AddressBlock;
  readonly pods: readonly string[];
}

/** True for a reserved block that was made from v1's data. */
export function isReserved({ metadata }: AddressBlock): boolean {
  return metadata.labels?.[RESERVED_LABEL] === "true";
}

/** Finds the block of an address, among many. */
export class BlockFinder {
  /** Blocks by their prefix. */
  readonly #blocks = new Map<string, AddressBlock>();
  readonly #lengths = new Set<string>();

  constructor(blocks: Iterable<AddressBlock>) {
    for (const block of blocks) {
      for (const text of [block.ipv4, block.ipv6]) {
        const cidr = typeof text === "string" ? Cidr.tryParse(text) : undefined;
        if (cidr === undefined) continue;
        this.#blocks.set(cidr.toString(), block);
        this.#lengths.add(`${cidr.family} ${cidr.prefixLength}`);
      }
    }
  }

  /** The block that has this address. */
  find(address: IpAddress): AddressBlock | undefined {
    for (const one of this.#lengths) {
      const [family, length] = one.split(" ").map(Number);
      if (family !== address.family || length === undefined) continue;
      const block = this.#blocks.get(Cidr.of(address, length).toString());
      if (block !== undefined) return block;
    }
    return undefined;
  }
}

/**
 * The pods of a node that are to be replaced: scheduled, not on the host's network, not finished, and with no address in a block that v2
 * allocates from. So a pod that replaced another one is not replaced again. `waiting` have no address yet: they will get an address of v2,
 * or have an address of v1 that the kubelet has not reported yet. Pure.
 */
export function podsToReplace(
  pods: Iterable<Pod>,
  blocks: BlockFinder,
): { readonly due: readonly PodRef[]; readonly waiting: readonly PodRef[] } {
  const [due, waiting]: [PodRef[], PodRef[]] = [[], []];
  for (const pod of pods) {
    if (!isConnected(pod)) continue;
    const addresses = addressesOf(pod);
    const ofV2 = addresses.some((address) => {
      const block = blocks.find(address);
      return block !== undefined && !isReserved(block);
    });
    if (!ofV2) (addresses.length === 0 ? waiting : due).push(refOf(pod));
  }
  return { due, waiting };
}

/**
 * The reserved blocks that may be deleted: no pod has an address of the block, and every pod of its node was replaced. Another block could
 * be carved again after its deletion, and two pods would have the same address. Pure; `failed` has the nodes on which a pod could not be
 * replaced, with these pods.
 */
export function planRelease(
  blocks: readonly AddressBlock[],
  pods: Iterable<Pod>,
  failed: ReadonlyMap<string, readonly string[]>,
): { readonly release: readonly AddressBlock[]; readonly held: readonly HeldBlock[] } {
  const reserved = blocks.filter(isReserved);
  const finder = new BlockFinder(reserved);
  const holders = new Map<string, Set<string>>();
  const hold = (block: AddressBlock, pod: string): void => {
    const { name } = block.metadata;
    holders.set(name, (holders.get(name) ?? new Set()).add(pod));
  };
  for (const pod of pods) {
    if (!isConnected(pod)) continue;
    for (const address of addressesOf(pod)) {
      const block = finder.find(address);
      if (block !== undefined) hold(block, `${pod.metadata.namespace}/${pod.metadata.name}`);
    }
  }
  for (const block of reserved) {
    for (const pod of failed.get(block.metadata.labels?.[NODE_LABEL] ?? "") ?? []) hold(block, pod);
  }
  return {
    release: reserved.filter(({ metadata }) => !holders.has(metadata.name)),
    held: reserved.flatMap((block) => {
      const pods = holders.get(block.metadata.name);
      return pods === undefined ? [] : [{ block, pods: [...pods].sort() }];
    }),
  };
}

/** Returns true if a pod can have an address of its own: it is on a node, not on the host's network, and has not finished. */
function isConnected({ spec, status }: Pod): boolean {
  if (spec?.nodeName === undefined || spec.nodeName === "" || spec.hostNetwork === true) return false;
  return status?.phase !== "Succeeded" && status?.phase !== "Failed";
}

function addressesOf({ status }: Pod): IpAddress[] {
  const texts = new Set([status?.podIP, ...(status?.podIPs ?? []).map(({ ip }) => ip)]);
  return [...texts].flatMap((text) => (text === undefined ? [] : (IpAddress.tryParse(text) ?? [])));
}
