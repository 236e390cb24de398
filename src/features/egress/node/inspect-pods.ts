import { type AbortOptions, TimeSlice } from "#base/async";
import { openConntrack } from "#kernel/conntrack";
import { KernelError } from "#kernel/errors";
import { type Kernel, OF_OTHERS, openSameNetNs } from "#kernel/net";
import { type ClientSettings, type EgressNode, observeSpace, type PodSpace, type SpaceId } from "../audit/index.ts";
import { openFilters } from "../filter/index.ts";
import type { KernelPlace } from "./client-places.ts";
import type { FilterOpeners } from "./open-filter.ts";

/**
 * Reads the kernel objects of NAT clients and routers in the pods of this node, for `isthmus audit`. Each namespace is read at one moment, but not all of them. Rejects
 * with `KernelError` if the places are not known.
 */
export async function inspectPods(
  parts: {
    readonly kernel: Kernel;
    readonly places: () => readonly KernelPlace[];
    readonly filters: Pick<FilterOpeners, "openFilter">;
  },
  { node, clients }: { readonly node: string; readonly clients: ClientSettings },
  { signal }: AbortOptions,
): Promise<EgressNode> {
  const spaces: PodSpace[] = [];
  const clean: SpaceId[] = [];
  const failed: (SpaceId & { readonly why: string })[] = [];
  const slice = new TimeSlice();
  // A pod with several interfaces has one namespace.
  for (const place of new Map(
    parts
      .places()
      .toReversed()
      .map((one) => [one.inode, one]),
  ).values()) {
    if (slice.isOver) await slice.yield();
    signal?.throwIfAborted();
    const { path, ifname, addresses, podUid } = place;
    const id = { path, addresses, ...(podUid === undefined ? {} : { podUid }) };
    // Pods end while they are read.
    using netns = openSameNetNs(parts.kernel, place);
    if (netns === undefined) continue;
    using stack = parts.kernel.openStack(netns, OF_OTHERS);
    // A pod's own processes can change its namespace while it is read. One that cannot be read stops no other.
    const space = await unlessRefused(() =>
      observeSpace(
        stack,
        { ...id, ifname },
        {
          port: clients.port,
          openMarks: () => parts.filters.openFilter(netns),
          openFilters: () => openFilters(netns),
          openConntrack: () => openConntrack(netns),
          ...(signal === undefined ? {} : { signal }),
        },
      ),
    );
    if (space instanceof KernelError) failed.push({ ...id, why: space.message });
    else if (space === undefined) clean.push(id);
    else spaces.push(space);
  }
  return { node, clients, spaces, clean, failed };
}

async function unlessRefused<T>(work: () => Promise<T>): Promise<T | KernelError> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    return error;
  }
}
