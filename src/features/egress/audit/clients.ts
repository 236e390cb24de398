import type { IpAddress } from "#base/ip";
import {
  type ClientOptions,
  clientScope,
  diffMarks,
  type EgressSource,
  faultText,
  type Gateway,
  gatewaysOf,
  guardedDestinations,
  isBeingRepaired,
  isMissing,
  keepClosed,
  NOTHING_HELD,
  namedEgresses,
  planClient,
  planMarks,
  skipText,
  withLackingFamilies,
} from "../client/index.ts";
import type { NetPlan } from "../net-plan/index.ts";
import { isRouter } from "../router/index.ts";
import { fouDriver, ipv6OffKey, type TunnelDriver, usableAddresses, vxlanDriver } from "../tunnel/index.ts";
import { type Difference, differencesOf } from "./differences.ts";
import { type EgressFinding, listed } from "./finding.ts";
import { egressScope } from "./observe.ts";
import { type AuditedPod, addressesOf, type NodePods } from "./pods.ts";
import type { ClientSettings, PodSpace } from "./state.ts";

/** The objects of the API server about Egresses. */
export interface AuditedEgresses {
  readonly source: EgressSource;
  /** The Egress whose Service has an address, as `namespace/name`. */
  readonly ofAddress: (address: IpAddress) => string | undefined;
}

const NOTHING: NetPlan = { settings: new Map(), fouPorts: [], links: [], rules: [], routes: [] };

/** The driver of this name. */
export function driverNamed(name: TunnelDriver["name"]): TunnelDriver {
  return name === "fou" ? fouDriver : vxlanDriver;
}

/** Pure: what the annotations of pods ask for in vain; of every pod, wherever it is. */
export function auditAnnotations(pods: readonly AuditedPod[], { source }: AuditedEgresses): EgressFinding[] {
  const routers = pods.filter(
    ({ routerOf, annotations, isLeaving }) =>
      routerOf !== undefined && namedEgresses(annotations).length > 0 && !isLeaving,
  );
  const ofRouters = routers.map(({ key, node }) =>
    finding("client-annotation", node, `pod ${key}: it is a router of an Egress, and routers cannot use one`),
  );
  const ofClients = pods
    .filter(({ isClient, hasNetwork, isLeaving }) => isClient && hasNetwork && !isLeaving)
    .flatMap((pod) => {
      const { faults } = gatewaysOf(pod, source, [4, 6], { originatingOnly: false });
      const refused = faults.filter(({ why }) => why === "refused").map(faultText);
      const texts = faults
        .filter((fault) => fault.why === "too-many" || (isMissing(fault) && !isBeingRepaired(fault)))
        .filter(({ why }) => why !== "refused")
        .map(faultText);
      const of = (kind: EgressFinding["kind"], all: readonly string[]): EgressFinding[] =>
        all.length === 0 ? [] : [finding(kind, pod.node, `pod ${pod.key}: ${listed(all)}`)];
      return [...of("client-annotation", texts), ...of("client-refused", refused)];
    });
  return [...ofRouters, ...ofClients];
}

/** Pure: the namespaces of a node's pods that are no routers, compared with what their annotations name. */
export function auditClients(
  at: NodePods,
  pods: readonly AuditedPod[],
  egresses: AuditedEgresses,
): { readonly findings: readonly EgressFinding[]; readonly clients: number } {
  const { node, spaces } = at;
  const { clients: settings } = node;
  if (settings === undefined) return { findings: [], clients: 0 };
  const own = pods.filter((pod) => pod.node === node.node && pod.routerOf === undefined && pod.hasNetwork);
  const clients = own.filter(({ isClient }) => isClient);
  const isStarted = ({ addresses, isRunning }: AuditedPod): boolean => isRunning && addresses.length > 0;
  const servedBy = redirectedAddresses(settings, pods);
  const findings: EgressFinding[] = [];
  if (settings.driver === undefined && clients.length > 0)
    findings.push(finding("egress-driver", node.node, `pods that name an Egress cannot start: ${settings.fault}`));
  for (const pod of own) {
    const found = spaces.get(pod.metadata.uid);
    if (found?.why !== undefined)
      findings.push(
        finding("client-namespace", node.node, `the network namespace of pod ${pod.key} was not read: ${found.why}`),
      );
    else if (found !== undefined)
      findings.push(
        ...auditPod(pod, found.space, addressesOf(pod, found), { ...settings, servedBy }, egresses, node.node),
      );
    else if (pod.isClient && !pod.isLeaving && isStarted(pod))
      findings.push(
        finding("client-namespace", node.node, `no network namespace on this node is that of pod ${pod.key}`),
      );
  }
  for (const stray of at.strays) findings.push(...auditStray(stray, settings, node.node));
  return { findings, clients: clients.length };
}

/** Returns the addresses of the router that serves a client past the Service, by UID of the client and by Egress. A pod that is no router of the Egress does not count. */
function redirectedAddresses(
  { redirects = [] }: ClientSettings,
  pods: readonly AuditedPod[],
): ReadonlyMap<string, readonly IpAddress[]> {
  const routers = new Map(pods.map((pod) => [`${pod.metadata.uid} ${pod.routerOf}`, pod.addresses]));
  return new Map(
    redirects.flatMap(({ uid, egress, router }) => {
      const addresses = routers.get(`${router} ${egress}`);
      return addresses === undefined ? [] : [[`${uid} ${egress}`, addresses]];
    }),
  );
}

function auditPod(
  pod: AuditedPod,
  space: PodSpace | undefined,
  addresses: ReturnType<typeof addressesOf>,
  settings: ClientSettings & { readonly servedBy: ReadonlyMap<string, readonly IpAddress[]> },
  { source, ofAddress }: AuditedEgresses,
  node: string,
): EgressFinding[] {
  const who = `pod ${pod.key}`;
  const families = ([4, 6] as const).filter((family) => addresses[family] !== undefined);
  const { uses, faults } = gatewaysOf(pod, source, families, settings);
  // It keeps the tunnels to the Service that was there. The finding on the Egress tells it.
  if (faults.some(isBeingRepaired)) return [];
  // What is closed of Egresses that are gone, or do not select the pod any more, only the pod's own routes tell.
  const found = guardedDestinations(space?.net.routes ?? []);
  const { gateways: ofServices, closed: own } = keepClosed(uses, { ...NOTHING_HELD, found });
  const gateways = ofServices.map((gateway) => {
    const { namespace, name } = gateway.egress;
    const routers = settings.servedBy.get(`${pod.metadata.uid} ${namespace}/${name}`) ?? [];
    const address = routers.find(({ family }) => family === gateway.address.family);
    return address === undefined ? gateway : { ...gateway, address };
  });
  const closed = withLackingFamilies(own, addresses, () => found);
  const hasNothing = gateways.length + closed.annotation.length + closed.selector.length === 0;
  if (space === undefined) {
    if (hasNothing || families.length === 0) return [];
    const what = gateways.length === 0 ? "its closed Egresses" : names(gateways);
    return [finding("client-lacks", node, `${who} has nothing of ${what}: neither tunnel nor rule`)];
  }
  const unread = space.unread.map((why) => finding("client-lacks", node, `${who}: ${why}`));
  if (hasNothing)
    return [
      ...unread,
      ...leftovers(
        pod.isClient ? `${who}, whose Egresses are gone,` : `${who}, which names no Egress,`,
        space,
        settings,
        node,
      ),
    ];
  if (space.mtuBytes === undefined)
    return [finding("client-namespace", node, `${who} has no interface ${space.ifname}`)];
  // Without a driver `coild` changes nothing; that is a finding of its own.
  if (settings.driver === undefined) return unread;
  const { plan, skipped } = planClient(
    {
      addresses: usableAddresses(addresses, hasIpv6Off(space)),
      ifname: space.ifname,
      mtuBytes: space.mtuBytes,
      closed,
      uplinks: gateways.some(({ originatingOnly }) => originatingOnly) ? space.uplinks : [],
    },
    gateways,
    optionsOf(settings, settings.driver),
  );
  const collisions = skipped.filter(({ why }) => why === "same-vni").map(skipText);
  const differences = differencesOf(plan, space.net, {
    scope: clientScope(settings.port),
    isOurLink: egressScope(settings.port).isOurLink,
    endText: (end) => (ofAddress(end) === undefined ? `${end}` : `${end} (Egress ${ofAddress(end)})`),
  });
  const { missing, stale } = diffMarks(planMarks(plan.rules, space.uplinks), space.marks ?? []);
  const wanted = new Set(gateways.map(({ address }) => String(address)));
  const isOld = ({ side, end }: Difference): boolean =>
    side !== "lacks" && end !== undefined && !wanted.has(String(end));
  const old = differences.filter(isOld);
  const rest = differences.filter((one) => !isOld(one));
  const lacks = [
    ...rest.filter(({ side }) => side !== "surplus").map(({ text }) => text),
    ...missing.map(({ family, comment }) => `IPv${family} rule of the packet filter "${comment}"`),
  ];
  const surplus = [
    ...rest.filter(({ side }) => side === "surplus").map(({ text }) => text),
    ...stale.map(({ family, comment }) => `IPv${family} rule of the packet filter "${comment}"`),
  ];
  return [
    ...unread,
    ...(collisions.length === 0 ? [] : [finding("client-annotation", node, `${who}: ${listed(collisions)}`)]),
    ...(old.length === 0
      ? []
      : [
          finding(
            "client-stale-tunnel",
            node,
            `${who} has a tunnel to an address that no Service of its Egresses has: ${listed(old.map(({ text }) => text))}`,
          ),
        ]),
    ...(lacks.length === 0 ? [] : [finding("client-lacks", node, `${who} lacks ${listed(lacks)}`)]),
    ...(surplus.length === 0 ? [] : [finding("client-surplus", node, `${who} has too much: ${listed(surplus)}`)]),
  ];
}

/** A namespace that no pod has. */
function auditStray(space: PodSpace, settings: ClientSettings, node: string): EgressFinding[] {
  if (isRouterSpace(space))
    return [finding("router-leftover", node, `${space.path}, the namespace of no pod, has a router's rule`)];
  return leftovers(`${space.path}, the namespace of no pod,`, space, settings, node);
}

/** Returns true if IPv6 is switched off in a namespace; a `coild` of before does not tell it. */
export function hasIpv6Off({ net, ifname }: PodSpace): boolean {
  return net.settings.get(ipv6OffKey(ifname)) === "1";
}

/** Returns true if a namespace has a router's rule. */
export function isRouterSpace({ net }: PodSpace): boolean {
  return isRouter({ rules: { list: (family) => net.rules.filter((rule) => rule.family === family) } });
}

function leftovers(who: string, space: PodSpace, { port }: ClientSettings, node: string): EgressFinding[] {
  if (isRouterSpace(space)) return [finding("router-leftover", node, `${who} has a router's rule`)];
  const { isOurLink } = egressScope(port);
  const texts = differencesOf(NOTHING, space.net, { scope: clientScope(port), isOurLink, endText: String }).map(
    ({ text }) => text,
  );
  const marks = (space.marks ?? []).map(({ family, comment }) => `IPv${family} rule of the packet filter "${comment}"`);
  const all = [...texts, ...marks];
  return all.length === 0 ? [] : [finding("client-leftover", node, `${who} still has ${listed(all)}`)];
}

function optionsOf({ port, inCluster }: ClientSettings, driver: TunnelDriver["name"]): ClientOptions {
  return { driver: driverNamed(driver), port, inCluster };
}

const names = (gateways: readonly Gateway[]): string =>
  listed([...new Set(gateways.map(({ egress }) => `Egress ${egress.namespace}/${egress.name}`))]);

function finding(kind: EgressFinding["kind"], node: string | undefined, text: string): EgressFinding {
  return { kind, node, text };
}
