import type { IpAddress, IpFamily } from "#base/ip";
import type { NetStack } from "#kernel/net";
import {
  type ClientRouter,
  type ClientService,
  type ClientUse,
  type EgressSource,
  faultText,
  type Gateway,
  gatewaysOf,
  isMarkedBy,
  type UsingPod,
} from "../client/index.ts";
import type { FilterBackend } from "../filter/index.ts";
import { vniOf } from "../tunnel/index.ts";
import { findWay, type WayAnswer } from "./way.ts";

type Ref = Gateway["egress"];

/** The objects of the API server about Egresses. */
export interface KnownEgresses {
  readonly source: EgressSource;
  /** The Services of Egresses. */
  readonly services: readonly Pick<ClientService, "metadata" | "addresses">[];
  /** The routers of Egresses. Absent: these credentials may not list them. */
  readonly routers?: readonly ClientRouter[] | undefined;
}

/** A pod whose packets are explained. */
export interface SendingPod extends UsingPod {
  readonly addresses: Readonly<Partial<Record<IpFamily, IpAddress>>>;
  readonly ifname: string;
}

/** The way of a packet in the namespace of the pod that sends it. */
export interface ClientWay {
  readonly way: WayAnswer;
  /** The Egress whose tunnel it takes. */
  readonly egress?: Ref;
  /** The way of the tunnel's own packets. */
  readonly outer?: WayAnswer;
  readonly notes: readonly string[];
}

const FAMILIES: readonly IpFamily[] = [4, 6];
const LINK_LOCAL_RULE = 1800;
const FIRST_RANGE_RULE = 2000;
const LAST_RANGE_RULE = 2099;
const ORIGIN_RULE = 1000;

/**
 * Explains the way of a packet in a pod's namespace, by its kernel. `answer`: the packet answers a connection that came in by the pod's interface; it gives the
 * packet filters to look for its mark. Changes nothing. Throws `KernelError`, `NftError` and `IptablesError`.
 */
export async function explainClientWay(
  net: Pick<NetStack, "links" | "routes" | "rules">,
  pod: SendingPod,
  destination: IpAddress,
  {
    known,
    answer,
  }: { readonly known: KnownEgresses; readonly answer?: { readonly filters: readonly FilterBackend[] } },
): Promise<ClientWay> {
  const { family } = destination;
  const own = pod.addresses[family];
  const notes: string[] = [];
  let mark = 0;
  if (answer !== undefined) {
    const index = net.links.get({ name: pod.ifname })?.index ?? 0;
    for (const filter of answer.filters)
      if (mark === 0 && (await isMarkedBy(filter, family, { name: pod.ifname, index }))) mark = index;
    notes.push(
      mark === 0
        ? `no rule of a packet filter marks what comes in by ${pod.ifname}, so an answer goes as any other packet`
        : `what comes in by ${pod.ifname} is marked, and so its answer has mark ${mark}`,
    );
  }
  const way = findWay(net, { destination, mark, source: answer === undefined ? undefined : own });
  const { tunnel } = way;
  const egress = tunnel === undefined ? undefined : egressOf(tunnel, known);
  return {
    way,
    ...(egress === undefined ? {} : { egress }),
    ...(tunnel === undefined ? {} : { outer: findWay(net, { destination: tunnel.remote, mark: 0, source: own }) }),
    notes: [...notes, ...notesOn(pod, destination, way, egress, known)],
  };
}

type Tunnel = NonNullable<WayAnswer["tunnel"]>;

/** The Egress whose Service, or one of whose routers, has the address of the tunnel's far end. */
function egressOf({ remote }: Tunnel, known: KnownEgresses): Ref | undefined {
  const found = known.services.find(({ addresses }) => addresses.some((address) => address.equals(remote)));
  if (found !== undefined) return { namespace: found.metadata.namespace ?? "", name: found.metadata.name };
  const router = routerAt(remote, known);
  return router === undefined ? undefined : refOf(router.egress);
}

function routerAt(remote: IpAddress, { routers = [] }: KnownEgresses): ClientRouter | undefined {
  return routers.find(({ addresses }) => addresses.some((address) => address.equals(remote)));
}

function refOf(key: string): Ref {
  const [namespace = "", name = ""] = key.split("/");
  return { namespace, name };
}

/** Pure: what the reader of an answer is likely to ask next. */
function* notesOn(
  pod: SendingPod,
  destination: IpAddress,
  way: WayAnswer,
  egress: Ref | undefined,
  known: KnownEgresses,
): Generator<string> {
  const { source } = known;
  const families = FAMILIES.filter((family) => pod.addresses[family] !== undefined);
  const { gateways, uses, faults } = gatewaysOf(pod, source, families, { originatingOnly: false });
  for (const fault of faults) yield faultText(fault);
  if (!way.isConfirmed)
    yield `rules and routes were changed while they were read, or have selectors that are not read: the kernel's own answer is ${way.kernel}`;
  if (way.tunnel !== undefined) {
    const { tunnel, device } = way;
    if (egress === undefined) {
      yield `no Egress's Service has the address ${tunnel.remote}: link ${device?.name} is left over, or its Service was made anew; isthmus audit compares them`;
    } else {
      const router = routerAt(tunnel.remote, known);
      if (router !== undefined)
        yield `router ${router.metadata.name} of Egress ${textOf(egress)} serves the pod at its own address, past the Service: another router of the Egress answers no probes of this node`;
      if (tunnel.vni !== undefined && tunnel.vni !== vniOf(egress))
        yield `the tunnel's identifier ${tunnel.vni} is not that of Egress ${textOf(egress)}, ${vniOf(egress)}: its router drops the packet`;
      const use = uses.find((one) => textOf(one.egress) === textOf(egress));
      if (use?.by === "selector") yield `spec.clients of Egress ${textOf(egress)} selects the pod`;
      if (use === undefined || use.state === "refused")
        yield `the pod does not use Egress ${textOf(egress)} any more: no annotation and no selector says so, or it may not; coild has not removed its tunnel yet`;
    }
    return;
  }
  if (way.isGuard) {
    const has = ({ destinations }: ClientUse): boolean => destinations.some((cidr) => cidr.contains(destination));
    if (!uses.some((use) => use.state === "ready" && has(use))) {
      yield way.guardBy === "selector"
        ? "the destination is closed: an Egress that selected the pod has it, and does not select the pod any more, or may not. It opens when the pod is made anew or selected again"
        : "the destination is closed: an Egress that the pod names has it, and is gone, or refuses the pod. It opens with the annotation's end";
      return;
    }
    // The fault says it.
    if (uses.some(({ lacking }) => lacking.some((cidr) => cidr.contains(destination)))) return;
    yield "the tunnel to this destination is missing; its unreachable route keeps packets from leaving without NAT until coild has made it again";
    return;
  }
  const wanted = gateways.filter((one) => one.destinations.some((cidr) => cidr.contains(destination)));
  const [first] = wanted;
  if (first === undefined) {
    if (uses.length > 0 && way.outcome === "link")
      yield `no Egress that the pod uses has ${destination} among its destinations`;
    return;
  }
  const name = `Egress ${textOf(first.egress)}`;
  const { priority = 0, rule = "" } = way.decidedBy ?? {};
  if (way.outcome === "local") yield `${destination} is an address of the pod itself`;
  else if (priority === ORIGIN_RULE)
    yield `${name} has this destination, and is originatingOnly: answers leave by the interface that the connection came in by`;
  else if (priority === LINK_LOCAL_RULE) yield `link-local addresses never go to an Egress (rule ${priority})`;
  else if (priority >= FIRST_RANGE_RULE && priority <= LAST_RANGE_RULE)
    yield `${name} has this destination, but rule ${priority} (${rule}) keeps ranges of the cluster from wider destinations; a destination inside the range goes to the Egress (coild --in-cluster-cidr)`;
  else if (first.address.equals(destination))
    yield `${destination} is the Service's address of ${name}: the tunnels' own packets go past its tables`;
  else
    yield `${name} has this destination, but the pod has no way to it: see isthmus audit, the events of the pod, and coild's log`;
}

const textOf = ({ namespace, name }: Ref): string => `${namespace}/${name}`;
