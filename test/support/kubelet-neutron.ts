/**
 * A live Neutron for a cluster of {@link Kubelets}: its server on the machine of the control plane, Open vSwitch and Neutron's agent on each node.
 * Node `n1` has the firewall of Open vSwitch, and plugs directly; `n2` that of iptables, and plugs through a Linux bridge.
 *
 * Owns: Neutron's programs, the links between the nodes' switches. Does not know: networks, pods.
 *
 * ```ts
 * await using neutron = await KubeletNeutron.open(cluster);
 * await neutron.api.makeNetwork({ name: "vpc-1" }, ["192.168.0.0/24"]);
 * await neutron.reboot("n1");
 * ```
 */
import { rmSync } from "node:fs";
import { join } from "node:path";
import { IpAddress } from "#base/ip";
import { openKernel } from "#kernel/net";
import { type NeutronApi, NeutronBed } from "#lab/neutron";
import { CONTROL_PLANE, NODES, type NodeName } from "#test/kubelet-node";
import type { Kubelets } from "#test/kubelets";

const FIREWALLS = { n1: "openvswitch", n2: "iptables_hybrid" } as const;
const PORT = 9696;

/** Disposing ends Neutron. */
export class KubeletNeutron implements AsyncDisposable {
  /** The credentials of nic-controller. */
  readonly credentials = `clouds: {cloud: {auth_type: none, auth: {endpoint: "http://${CONTROL_PLANE}:${PORT}"}}}\n`;
  readonly #cluster: Kubelets;
  readonly #bed: NeutronBed;

  private constructor(cluster: Kubelets, bed: NeutronBed) {
    this.#cluster = cluster;
    this.#bed = bed;
  }

  /** Resolves when Neutron takes the agents of all nodes for alive. */
  static async open(cluster: Kubelets): Promise<KubeletNeutron> {
    const hosts = NODES.map((name) => ({
      name,
      netns: cluster.netns(name),
      firewall: FIREWALLS[name],
      ovs: join(cluster.folder, `${name}-ovs`),
    }));
    const cloud = { netns: cluster.netns("cp"), address: IpAddress.parse(CONTROL_PLANE) };
    const bed = await NeutronBed.open({ kernel: openKernel() }, { cloud, hosts });
    const neutron = new KubeletNeutron(cluster, bed);
    for (const name of NODES) await neutron.#show(name);
    return neutron;
  }

  /** A cloud's user. */
  get api(): NeutronApi {
    return this.#bed.api;
  }

  /** Ports of `br-int` of a node. */
  plugged(name: NodeName): readonly string[] {
    return this.#bed.ovs(name).devices();
  }

  /** Ends Neutron's agent of a node, its switch, and the node at once, like a loss of power. */
  async lose(name: NodeName): Promise<void> {
    await this.#bed.stopAgent(name);
    await this.#bed.ovs(name).stopSwitch();
    // The kernel removes a namespace some time later; its link must not meet the next one.
    await this.#cluster.run(["ip", "link", "delete", this.#link(name)]);
    await this.#cluster.node(name).shutDown();
  }

  /** Starts a node after {@link lose}. Open vSwitch, which has its database on the disk, starts after the kubelet, and Neutron's agent after it. */
  async restore(name: NodeName): Promise<void> {
    await this.#cluster.node(name).boot();
    const link = this.#link(name);
    const peer = ["type", "veth", "peer", "name", "vpc0", "netns", this.#cluster.netns(name)];
    await this.#cluster.run(["ip", "link", "add", link, "master", "vpc", "up", ...peer]);
    await this.#cluster.node(name).run("ip", "link", "set", "vpc0", "up");
    await this.#bed.restartSwitch(name);
    await this.#show(name);
    await this.#bed.untilAlive(name);
  }

  async reboot(name: NodeName): Promise<void> {
    await this.lose(name);
    await this.restore(name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#bed[Symbol.asyncDispose]();
    for (const name of NODES) rmSync(join(this.#cluster.folder, `${name}-ovs`), { recursive: true, force: true });
  }

  /** Puts the sockets of its Open vSwitch where a node has them. */
  async #show(name: NodeName): Promise<void> {
    const node = this.#cluster.node(name);
    await node.run("mkdir", "-p", "/run/openvswitch");
    await node.run("mount", "--bind", this.#bed.ovs(name).folder, "/run/openvswitch");
  }

  /** The end of its link to the other switches that is on the control plane's machine. */
  #link(name: NodeName): string {
    return `vpc-${NODES.indexOf(name) + 1}`;
  }
}
