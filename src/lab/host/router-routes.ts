import { Dirty, TaskGroup } from "#base/async";
import type { Clock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import type { Kernel, NetStack } from "#kernel/net";
import { openNetNs } from "#kernel/netns";
import { type KubeApi, type Pod, resources } from "#kube/client";
import { createInformer } from "#kube/informer";
import type { Topology } from "#lab/topology";

/** The interval at which the routes are compared with the pods without an event, in milliseconds. */
const RESYNC_MS = 5000;
/** The routers of all Egresses. */
const ROUTERS = "app.kubernetes.io/name=coil,app.kubernetes.io/component=egress";

/** A way to one router: through its node in the fabric, through the fabric outside. */
export interface RouterRoute {
  readonly address: IpAddress;
  readonly node: IpAddress;
}

/** Pure: the routers' addresses and those of their nodes, in both families. */
export function routerRoutes(pods: Iterable<Pod>, { nodes }: Pick<Topology, "nodes">): readonly RouterRoute[] {
  return [...pods].flatMap(({ spec, status }) => {
    // An address of a pod that has ended may be another's.
    if (status?.phase === "Failed" || status?.phase === "Succeeded") return [];
    const node = nodes.find(({ name }) => name === spec?.nodeName);
    return (status?.podIPs ?? []).flatMap(({ ip = "" }) => {
      const address = IpAddress.tryParse(ip);
      const via = node?.addresses.find(({ family }) => family === address?.family);
      return address === undefined || via === undefined ? [] : [{ address, node: via }];
    });
  });
}

/**
 * Keeps routes to the routers of Egresses in the fabric and outside, as a site's routers that learn them would. Nothing else leads
 * from there to pods. Lasts until the signal aborts.
 */
export async function keepRouterRoutes(
  deps: { readonly api: KubeApi; readonly kernel: Kernel; readonly log: Logger; readonly clock: Clock },
  topology: Topology,
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const { outside } = topology;
  if (outside === undefined) return;
  using fabricNs = openNetNs({ name: topology.fabric });
  using fabric = deps.kernel.openStack(fabricNs);
  using outsideNs = openNetNs({ name: outside.netns });
  using far = deps.kernel.openStack(outsideNs);
  const dirty = new Dirty(deps.clock);
  const mark = (): void => void dirty.mark("pods or routes");
  const pods = createInformer(deps.api, resources.pods, { labelSelector: ROUTERS, clock: deps.clock });
  pods.addHandler({ onAdd: mark, onUpdate: mark, onDelete: mark });
  const inFabric = new Kept(fabric);
  const outThere = new Kept(far);
  const sync = async (): Promise<void> => {
    const routes = routerRoutes(pods.store.values(), topology);
    inFabric.set(routes.map(({ address, node }) => [address, node]));
    outThere.set(
      routes.flatMap(({ address }) => {
        const gateway = outside.transit.fabric.find((one) => one.address.family === address.family)?.address;
        return gateway === undefined ? [] : [[address, gateway]];
      }),
    );
  };
  const group = new TaskGroup(signal);
  group.spawn((at) => pods.run({ signal: at }));
  group.spawn((at) =>
    repeat(sync, {
      signal: at,
      dirty,
      everyMs: RESYNC_MS,
      clock: deps.clock,
      onFailure: (error) => deps.log.warn("cannot write the routes to routers", { error: error.message }),
    }),
  );
  await group.wait();
}

/** Host routes of one namespace, which nobody else writes there. */
class Kept {
  readonly #stack: NetStack;
  readonly #routes = new Map<string, { readonly address: IpAddress; readonly gateway: IpAddress }>();

  constructor(stack: NetStack) {
    this.#stack = stack;
  }

  /** Throws `KernelError`; what was written until then counts, and the next call goes on. */
  set(wanted: readonly (readonly [IpAddress, IpAddress])[]): void {
    const by = new Map(wanted.map(([address, gateway]) => [String(address), { address, gateway }]));
    for (const [key, { address, gateway }] of by) {
      if (String(this.#routes.get(key)?.gateway) === String(gateway)) continue;
      this.#stack.routes.replace({ dst: Cidr.host(address), gateway });
      this.#routes.set(key, { address, gateway });
    }
    for (const [key, { address }] of [...this.#routes]) {
      if (by.has(key)) continue;
      this.#stack.routes.delete({ dst: Cidr.host(address) });
      this.#routes.delete(key);
    }
  }
}
