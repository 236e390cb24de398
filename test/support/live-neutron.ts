/**
 * The whole path of NICs on a live Neutron: two nodes with Open vSwitch and Neutron's own agents, the shipped `nic-controller`, a `nic-agent`
 * and CNI calls on each node, and the embedded API server. Node `node1` has the firewall of Open vSwitch, and plugs directly; `node2` that of
 * iptables, and plugs through a Linux bridge.
 *
 * Owns: the nodes, sandboxes of pods, packets between them. Does not know: the tests.
 *
 * ```ts
 * await using bed = await LiveBed.open("live");
 * const web = await bed.start("web", "node1");
 * assert.ok(await bed.reaches(web, "192.168.0.12"));
 * ```
 */
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { openKernel } from "#kernel/net";
import { createNetNs, deleteNetNs, openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { resources } from "#kube/client";
import type { NicClaim } from "#kube/nic";
import { CniCallError, execCni } from "#lab/kubelet";
import { missingPrograms, NeutronApi, NeutronBed } from "#lab/neutron";
import { buildTopology, planTopology, removeTopology, type Topology } from "#lab/topology";
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { NAMESPACE, NicBed, nicOf } from "#test/nic-bed";

/** The reason to skip a test of a live Neutron; `false` where all of it is installed. */
export const skipWithoutNeutron: string | false =
  missingPrograms().length === 0 ? false : `package: ${missingPrograms().join(", ")} are not installed`;

const API_PORT = 6443;

/** A Neutron in namespaces, with its requests relayed to here. */
export class LiveNeutron extends NeutronApi implements AsyncDisposable {
  readonly bed: NeutronBed;

  constructor(bed: NeutronBed) {
    super(bed.api.url);
    this.bed = bed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.bed[Symbol.asyncDispose]();
  }
}

/** A node with its agent. */
export interface LiveNode {
  readonly name: string;
  readonly netns: string;
  readonly socket: string;
  agent: Running;
}

/** A pod with its sandbox. */
export interface LivePod {
  readonly name: string;
  readonly uid: string;
  readonly node: string;
  /** Name of its network namespace. */
  readonly netns: string;
  readonly containerId: string;
}

/** The result of ADD, as the executable has printed it. */
export type LiveResult = Readonly<Record<string, unknown>> & {
  readonly interfaces?: readonly { readonly name: string; readonly mac?: string; readonly sandbox?: string }[];
  readonly ips?: readonly { readonly address: string; readonly interface?: number }[];
};

/** What a pod asks for, and how its plugin is configured. */
export interface LiveOptions {
  readonly nics?: readonly object[];
  readonly vpc?: string;
  /** The virtual machine of the pod. */
  readonly vm?: object;
  /** Further keys of the plugin's configuration. */
  readonly config?: object;
}

/** Disposing ends and removes all of it. */
export class LiveBed implements AsyncDisposable {
  readonly topology: Topology;
  readonly nics: NicBed<LiveNeutron>;
  readonly nodes: ReadonlyMap<string, LiveNode>;
  readonly controller: Running;
  readonly #cleanUps: readonly (() => unknown)[];
  #serial = 0;

  private constructor(init: {
    readonly topology: Topology;
    readonly nics: NicBed<LiveNeutron>;
    readonly nodes: ReadonlyMap<string, LiveNode>;
    readonly controller: Running;
    readonly cleanUps: readonly (() => unknown)[];
  }) {
    this.topology = init.topology;
    this.nics = init.nics;
    this.nodes = init.nodes;
    this.controller = init.controller;
    this.#cleanUps = init.cleanUps;
  }

  /** Resolves when controller and agents serve; the network `vpc-1` has 192.168.0.0/24, and gives addresses from .32 to .239. */
  static async open(lab: string, controllerFlags: readonly string[] = []): Promise<LiveBed> {
    const kernel = openKernel();
    const topology = planTopology({ lab, nodes: 2, families: "ipv4", tunnel: false });
    const cleanUps: (() => unknown)[] = [() => removeTopology(kernel, lab)];
    try {
      buildTopology(kernel, topology);
      const [address] = topology.gateways;
      assert.ok(address !== undefined);
      const hosts = topology.nodes.map(({ name, netns }, at) => ({
        name,
        netns,
        firewall: at === 0 ? ("openvswitch" as const) : ("iptables_hybrid" as const),
      }));
      using fabric = openNetNs({ name: topology.fabric });
      const fd = listenTcp(address, API_PORT, { netns: fabric });
      const scope = { after: (cleanUp: () => unknown) => void cleanUps.push(cleanUp) };
      const cloud = { netns: topology.fabric, address };
      const starting = NeutronBed.open({ kernel }, { cloud, hosts }).then((bed) => new LiveNeutron(bed));
      const nics = await NicBed.on(scope, starting, { sockets: [{ fd, host: address.toString() }] });
      for (const { name } of topology.nodes) await nics.api.create(resources.nodes, { metadata: { name } });
      // Addresses that tests ask for are none that a port without a wish gets.
      const pool = { start: "192.168.0.32", end: "192.168.0.239" };
      await nics.neutron.makeNetwork({ name: "vpc-1" }, ["192.168.0.0/24"], { allocation_pools: [pool] });
      const controller = nics.run(...controllerFlags);
      const nodes = new Map<string, LiveNode>();
      const inNodes = join(nics.folder, "in-nodes");
      writeFileSync(inNodes, nics.server.kubeconfig({ server: `http://${address}:${API_PORT}`, token: "agent" }));
      for (const { name, netns } of topology.nodes) {
        const socket = join(nics.folder, `${name}.sock`);
        const agent = startAgent(nics, { name, netns, socket });
        cleanUps.push(async () => {
          nodes.get(name)?.agent.child.kill("SIGKILL");
          await nodes.get(name)?.agent.ended;
        });
        nodes.set(name, { name, netns, socket, agent });
      }
      const bed = new LiveBed({ topology, nics, nodes, controller, cleanUps });
      for (const { name } of topology.nodes) await bed.untilServes(name);
      return bed;
    } catch (error) {
      for (const cleanUp of cleanUps.toReversed()) await cleanUp();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const cleanUp of this.#cleanUps.toReversed()) await cleanUp();
  }

  get neutron(): LiveNeutron {
    return this.nics.neutron;
  }

  /** Kills the agent of a node and starts another one. */
  async restartAgent(name: string): Promise<void> {
    const node = this.node(name);
    node.agent.child.kill("SIGKILL");
    await node.agent.ended;
    node.agent = startAgent(this.nics, node);
    await this.untilServes(name);
  }

  async untilServes(name: string): Promise<void> {
    const { agent } = this.node(name);
    await until(`the agent of ${name} serves`, () => agent.said().includes('"serving"'), {
      seen: agent.said,
      deadlineMs: 60_000,
    });
  }

  node(name: string): LiveNode {
    return this.nodes.get(name) ?? assert.fail(`no node ${name}`);
  }

  /** Makes a pod on a node and a sandbox for it; nothing is called yet. */
  async make(name: string, node: string, options: LiveOptions = {}): Promise<LivePod> {
    this.#serial += 1;
    const uid = await this.nics.pod(name, {
      node,
      ...(options.nics === undefined ? {} : { nics: options.nics }),
      ...(options.vpc === undefined ? {} : { vpc: options.vpc }),
      ...(options.vm === undefined ? {} : { vm: options.vm }),
    });
    return this.sandbox({ name, uid, node });
  }

  /** Makes a sandbox for a pod. */
  sandbox(pod: Pick<LivePod, "name" | "uid" | "node">): LivePod {
    this.#serial += 1;
    const netns = `isthmus-${this.topology.lab}-pod-${this.#serial}`;
    createNetNs(netns)[Symbol.dispose]();
    execFileSync("ip", ["-n", netns, "link", "set", "lo", "up"]);
    return { ...pod, netns, containerId: `c${this.#serial}${pod.name}`.padEnd(64, "0") };
  }

  /** Calls the executable as a runtime on the node of the pod does. Rejects with `CniCallError`. */
  async cni(command: "ADD" | "DEL" | "CHECK", pod: LivePod, config: object = {}): Promise<LiveResult> {
    const { netns: name, socket } = this.node(pod.node);
    using netns = openNetNs({ name });
    const executable = join(ISTHMUS, "../cni/vpc-neutron");
    const call = execCni(netns, {
      executable,
      config: {
        cniVersion: "1.0.0",
        name: "vpc",
        type: "vpc-neutron",
        socket,
        // On a busy machine Neutron's agent needs long; both waits together are less than the executable's 60 s.
        activeTimeoutMs: 29_000,
        capabilities: { "io.kubernetes.cri.pod-annotations": true },
        ...config,
      },
    });
    const found = await this.nics.findPod(pod.name);
    const answer = await call({
      command,
      containerId: pod.containerId,
      netnsPath: `/run/netns/${pod.netns}`,
      ifname: "eth0",
      annotations: found?.metadata.annotations,
      args: { K8S_POD_NAMESPACE: NAMESPACE, K8S_POD_NAME: pod.name, K8S_POD_UID: pod.uid },
    });
    return answer ?? {};
  }

  /** Makes a pod and its interfaces. */
  async start(
    name: string,
    node: string,
    options: LiveOptions = {},
  ): Promise<LivePod & { readonly result: LiveResult }> {
    const pod = await this.make(name, node, options);
    try {
      return { ...pod, result: await this.cni("ADD", pod, options.config) };
    } catch (error) {
      if (!(error instanceof CniCallError)) throw error;
      throw new Error(`${error.message}\n${this.#words(pod)}`, { cause: error });
    }
  }

  /** Ends a pod as a kubelet does, and waits until its claim is gone. */
  async end(pod: LivePod, config: object = {}): Promise<void> {
    await this.cni("DEL", pod, config);
    deleteNetNs(pod.netns);
    await this.nics.deletePod(pod.name);
    await this.nics.untilGone(pod.uid);
  }

  async claim(pod: LivePod): Promise<NicClaim> {
    return (await this.nics.claim(pod.uid)) ?? assert.fail(`${pod.name} has no claim`);
  }

  /** The first address of a NIC. */
  async address(pod: LivePod, nic = "eth0"): Promise<string> {
    return nicOf(await this.claim(pod), nic).ips?.[0]?.ip ?? assert.fail(`${pod.name} has no address`);
  }

  /** Whether an echo comes back, of up to `tries` that are sent each 0.2 s. */
  async reaches(pod: LivePod, address: string, { tries = 25, from = "" } = {}): Promise<boolean> {
    const source = from === "" ? [] : ["-I", from];
    // -c with -w: it ends at the first answers or after the time.
    const wait = String(Math.ceil(tries / 5));
    const argv = ["netns", "exec", pod.netns, "ping", "-q", "-i", "0.2", "-c", "1", "-w", wait, ...source, address];
    return promisify(execFile)("ip", argv).then(
      () => true,
      () => false,
    );
  }

  /** Starts a guest on a TAP device of a pod's node, which answers echoes. */
  async guest(pod: LivePod): Promise<Running> {
    const nic = nicOf(await this.claim(pod));
    const device = `tap${nic.portID?.slice(0, 11)}`;
    const script = join(import.meta.dirname, "tap-guest.py");
    const argv = ["/usr/bin/python3", script, device, nic.mac ?? "", await this.address(pod)];
    const guest = start(["nsenter", `--net=/run/netns/${this.node(pod.node).netns}`, ...argv], { timeoutMs: 600_000 });
    await until("the guest reads", () => guest.printed().includes("ready"), { seen: guest.said });
    return guest;
  }

  /** The host's devices of NICs of a node, sorted. */
  devices(node: string): string[] {
    const text = execFileSync("ip", ["-n", this.node(node).netns, "-o", "link", "show"], { encoding: "utf8" });
    return [...text.matchAll(/^\d+: ([^:@]+)/gm)]
      .map(([, name = ""]) => name)
      .filter((name) => /^(qbr|qvb|qvo|tap)/.test(name))
      .sort();
  }

  /** The integration bridge's ports of NICs on a node. */
  plugged(node: string): string[] {
    return this.neutron.bed
      .ovs(node)
      .devices()
      .filter((name) => /^(qvo|tap)/.test(name));
  }

  /** One port, as Neutron has it now. */
  async port(id: string): Promise<Readonly<Record<string, unknown>> | undefined> {
    return (await this.neutron.list(`ports?id=${id}`))[0];
  }

  /** Waits until Neutron has a status for a port. */
  async untilStatus(id: string, status: string): Promise<void> {
    await this.nics.until(`the port is ${status}`, async () => (await this.port(id))?.["status"] === status);
  }

  #words({ node }: LivePod): string {
    const agent = this.neutron.bed.log(`agent-${node}`).slice(-1500);
    return `${this.node(node).agent.said().slice(-1500)}\n--\n${this.controller.said().slice(-1500)}\n--\n${agent}`;
  }
}

function startAgent(nics: NicBed<LiveNeutron>, at: Pick<LiveNode, "name" | "netns" | "socket">): Running {
  const flags = [
    `--kubeconfig=${join(nics.folder, "in-nodes")}`,
    `--socket=${at.socket}`,
    `--state-dir=${join(nics.folder, at.name)}`,
    `--ovsdb=${nics.neutron.bed.ovs(at.name).socketPath}`,
  ];
  return start(["nsenter", `--net=/run/netns/${at.netns}`, ISTHMUS, "nic-agent", ...flags], {
    env: { COIL_NODE_NAME: at.name },
    timeoutMs: 900_000,
  });
}
