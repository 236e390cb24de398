/** A client, a router and a pod without an Egress on the fake kernel, with the objects of the API, for tests of the audit. */
import assert from "node:assert/strict";
import { Cidr, IpAddress } from "#base/ip";
import { type ConntrackEntry, FakeConntrack } from "#kernel/conntrack";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import { FakeNft } from "#kernel/nft";
import type { ClusterRoleBinding, Deployment, EndpointSlice, Pod, Service } from "#kube/client";
import { type Egress, egressLabels } from "#kube/coil";
import { auditEgress, type EgressAudit, type EgressAuditInput } from "../audit/audit.ts";
import { decodeNode, encodeNode } from "../audit/codec.ts";
import { observeSpace } from "../audit/observe.ts";
import type { EgressNode, PodSpace, SpaceId } from "../audit/state.ts";
import { type ClosedDestinations, type Gateway, PRIVATE_RANGES, syncClient } from "../client/index.ts";
import { nftFilter } from "../filter/index.ts";
import { syncNet } from "../net-plan/index.ts";
import { planRouter, planRules, routerRules, routerScope } from "../router/index.ts";
import type { TunnelDriver } from "../tunnel/index.ts";

export const PORT = 5555;
export const NODE = "node1";
const ip = IpAddress.parse;
export const EGRESS = { namespace: "internet", name: "nat" } as const;
export const SERVICE = { 4: ip("10.68.0.9"), 6: ip("fd03::9") } as const;
export const ADDRESSES = {
  client: { 4: ip("10.64.0.7"), 6: ip("fd02::7") },
  router: { 4: ip("10.64.0.8"), 6: ip("fd02::8") },
  plain: { 4: ip("10.64.0.9"), 6: ip("fd02::9") },
} as const;
export type Member = keyof typeof ADDRESSES;
const MEMBERS = ["client", "router", "plain"] as const;

/** Objects that tests change. */
export type Objects = { -readonly [Key in keyof EgressAuditInput]: EgressAuditInput[Key] };

/** A pod of the world. */
export function podOf(
  name: string,
  ips: readonly unknown[],
  more: { readonly names?: string; readonly labels?: object; readonly node?: string } = {},
): Pod {
  const annotations = more.names === undefined ? {} : { [`egress.coil.cybozu.com/${EGRESS.namespace}`]: more.names };
  return {
    metadata: {
      name,
      namespace: more.labels === undefined ? "default" : EGRESS.namespace,
      uid: `uid-${name}`,
      resourceVersion: "1",
      annotations,
      labels: more.labels ?? {},
    },
    spec: { nodeName: more.node ?? NODE },
    status: { phase: "Running", podIPs: ips.map((one) => ({ ip: String(one) })) },
  } as unknown as Pod;
}

/** Everything as it should be. */
export class World {
  readonly kernel = new FakeKernel();
  readonly stacks: Readonly<Record<Member, NetStack>>;
  readonly nfts: Readonly<Record<Member, FakeNft>> = {
    client: new FakeNft(),
    router: new FakeNft(),
    plain: new FakeNft(),
  };
  readonly conntrack = new FakeConntrack();
  readonly objects: Objects;
  readonly driver: TunnelDriver;
  /** The settings that `coild` of the node reports. */
  settings: NonNullable<EgressNode["clients"]>;
  /** Namespaces that are not found. */
  readonly lost = new Set<Member>();
  /** Namespaces that cannot be read. */
  readonly unreadable = new Set<Member>();
  /** Behind another plugin the kernel tells the pod's UID, and no address. */
  isChained = false;

  constructor(driver: TunnelDriver) {
    this.driver = driver;
    this.settings = { driver: driver.name, fault: "", port: PORT, inCluster: PRIVATE_RANGES, originatingOnly: false };
    using host = this.kernel.openStack(this.kernel.openNetNs("own"));
    const open = (member: Member): NetStack => {
      const ns = this.kernel.createNetNs(member);
      const stack = this.kernel.openStack(ns);
      host.links.create({
        kind: "veth",
        name: `veth-${member}`,
        up: true,
        peer: { name: "eth0", netns: ns, up: true },
      });
      const { index } = stack.links.get({ name: "eth0" }) ?? assert.fail("no eth0");
      for (const family of [4, 6] as const) {
        stack.addresses.add({ linkIndex: index, address: ADDRESSES[member][family], noDad: true });
        stack.routes.add({ dst: Cidr.parse(family === 4 ? "0.0.0.0/0" : "::/0"), linkIndex: index });
      }
      return stack;
    };
    this.stacks = { client: open("client"), router: open("router"), plain: open("plain") };
    const meta = { ...EGRESS, uid: "e", resourceVersion: "1", labels: egressLabels(EGRESS.name) };
    this.objects = {
      pods: [
        podOf("client", Object.values(ADDRESSES.client), { names: EGRESS.name }),
        podOf("router", Object.values(ADDRESSES.router), { labels: egressLabels(EGRESS.name) }),
        podOf("plain", Object.values(ADDRESSES.plain)),
      ],
      egresses: [
        {
          metadata: { ...meta },
          spec: { destinations: ["0.0.0.0/0", "::/0", "172.20.0.0/16"], replicas: 1, template: {} },
          status: { replicas: 1 },
        } as unknown as Egress,
      ],
      services: [
        {
          metadata: meta,
          spec: { clusterIPs: Object.values(SERVICE).map(String), ports: [{ port: PORT, protocol: "UDP" }] },
        } as unknown as Service,
      ],
      deployments: [
        { metadata: meta, spec: { replicas: 1 }, status: { availableReplicas: 1 } } as unknown as Deployment,
      ],
      slices: [
        {
          metadata: { ...meta, name: "nat-x", labels: { "kubernetes.io/service-name": EGRESS.name } },
          endpoints: [{ addresses: [], conditions: { ready: true } }],
        } as unknown as EndpointSlice,
      ],
      bindings: [
        {
          metadata: { name: "coil-egress" },
          subjects: [{ kind: "ServiceAccount", name: "coil-egress", namespace: EGRESS.namespace }],
        } as unknown as ClusterRoleBinding,
      ],
      namespaces: [],
      nodes: [],
    };
  }

  /** The gateways of the one Egress. */
  gateways(originatingOnly = false): Gateway[] {
    const of = (family: 4 | 6, destinations: readonly string[]): Gateway => ({
      egress: EGRESS,
      address: SERVICE[family],
      destinations: destinations.map((one) => Cidr.parse(one)),
      sourcePortAuto: false,
      originatingOnly,
    });
    return [of(4, ["0.0.0.0/0", "172.20.0.0/16"]), of(6, ["::/0"])];
  }

  readonly #openConntrack = (): FakeConntrack =>
    Object.assign(Object.create(this.conntrack) as FakeConntrack, { [Symbol.dispose]: () => undefined });

  /** Makes the client of a pod. */
  async syncClient(
    gateways: readonly Gateway[],
    member: Member = "client",
    closed: ClosedDestinations = { annotation: [], selector: [] },
  ): Promise<void> {
    const openFilter = () => ({ ...nftFilter(this.nfts[member]), [Symbol.dispose]: () => undefined });
    const pod = { addresses: ADDRESSES[member], ifname: "eth0", mtuBytes: 1500, closed };
    const options = {
      driver: this.driver,
      port: PORT,
      inCluster: PRIVATE_RANGES,
      openFilter,
      openConntrack: this.#openConntrack,
    };
    await syncClient(this.stacks[member], pod, gateways, options);
  }

  /** Makes the router, with ways to these addresses. */
  async syncRouter(
    clients: readonly IpAddress[] = Object.values(ADDRESSES.client),
    member: Member = "router",
  ): Promise<void> {
    const pod = { egress: EGRESS, addresses: ADDRESSES[member], ifname: "eth0", mtuBytes: 1500 };
    const plan = planRouter(pod, clients, { driver: this.driver, port: PORT, sourcePortAuto: false });
    await syncNet(this.stacks[member], plan, routerScope(PORT));
    await routerRules(nftFilter(this.nfts[member])).sync(planRules(pod));
  }

  /** An entry of the router's connection tracking. */
  flow(src: string, dst: string, more: { readonly protocol?: number; readonly dstPort?: number } = {}): void {
    const [from, to] = [ip(src), ip(dst)];
    const { protocol = 6, dstPort = 443 } = more;
    const entry: ConntrackEntry = {
      family: from.family,
      protocol,
      original: { src: from, dst: to, dstPort },
      reply: { src: to, dst: from },
      mark: 0,
    };
    this.conntrack.entries.push(entry);
  }

  /** The node's answer, as it comes out of JSON. */
  async look(): Promise<EgressNode> {
    const spaces: PodSpace[] = [];
    const clean: SpaceId[] = [];
    const failed: EgressNode["failed"][number][] = [];
    for (const member of MEMBERS) {
      if (this.lost.has(member)) continue;
      const id = {
        path: `/run/netns/${member}`,
        ...(this.isChained
          ? { podUid: `uid-${member}`, addresses: [] }
          : { addresses: Object.values(ADDRESSES[member]) }),
      };
      if (this.unreadable.has(member)) {
        failed.push({ ...id, why: "the listing was interrupted" });
        continue;
      }
      const filter = () => ({ ...nftFilter(this.nfts[member]), [Symbol.dispose]: () => undefined });
      const space = await observeSpace(
        this.stacks[member],
        { ...id, ifname: "eth0" },
        {
          port: PORT,
          openMarks: filter,
          openFilters: () => ({ all: [filter()], [Symbol.dispose]: () => undefined }),
          openConntrack: this.#openConntrack,
        },
      );
      if (space === undefined) clean.push(id);
      else spaces.push(space);
    }
    const node = { node: NODE, clients: this.settings, spaces, clean, failed };
    return decodeNode(JSON.parse(JSON.stringify(encodeNode(node))));
  }

  async audit(): Promise<EgressAudit> {
    return auditEgress({ ...this.objects, nodes: [await this.look()] });
  }
}

/** A world in which all is as it should be. */
export async function openWorld(driver: TunnelDriver): Promise<World> {
  const world = new World(driver);
  await world.syncClient(world.gateways());
  await world.syncRouter();
  return world;
}
