/**
 * The whole path of NICs on a live Neutron: `isthmus lab --vpc` and what it leaves, two nodes with Open vSwitch and Neutron's own agents,
 * `nic-controller`, a `nic-agent` on each node. Node `node1` has the firewall of Open vSwitch, and plugs directly; `node2` that of iptables,
 * and plugs through a Linux bridge. A test calls the CNI executable itself, because its pods have a RuntimeClass that no kubelet has.
 *
 * Owns: the lab, sandboxes of pods, packets between them. Does not know: the tests.
 *
 * ```ts
 * await using bed = await LiveBed.open("live");
 * const web = await bed.start("web", "node1");
 * await bed.untilReaches(web, await bed.start("other", "node2"));
 * ```
 */
import assert from "node:assert/strict";
import { execFile, execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { systemClock } from "#base/clock";
import { openKernel } from "#kernel/net";
import { createNetNs, deleteNetNs, openNetNs } from "#kernel/netns";
import { KubeClient, loadKubeConfig } from "#kube/client";
import type { NicClaim } from "#kube/nic";
import { labPaths } from "#lab/host";
import { CniCallError, execCni } from "#lab/kubelet";
import {
  type MechanismDriver,
  missingOvnPrograms,
  missingPrograms,
  type NeutronApi,
  RunningNeutron,
} from "#lab/neutron";
import type { LabReport } from "#lab/scenario";
import { ISTHMUS, isthmus, type Running, removeLab, start, stateOf, until } from "#test/lab";
import { NAMESPACE, NicCluster, nicOf } from "#test/nic-cluster";

/** The reason to skip a test of a live Neutron; `false` where all of it is installed. */
export const skipWithoutNeutron: string | false =
  missingPrograms().length === 0 ? false : `package: ${missingPrograms().join(", ")} are not installed`;

/** The same where OVN programs the switches. */
export const skipWithoutOvn: string | false =
  [...missingPrograms(), ...missingOvnPrograms()].length === 0 ? false : "package: Neutron or OVN is not installed";

/** Time until an echo must come back, in milliseconds: a neighbour drops a MAC address that is not answered any more after 53 s at most. */
const REACH_MS = 60_000;

const podPrefix = (lab: string): string => `isthmus-${lab}-pod-`;

/** The namespaces of sandboxes of a lab's pods that are there. */
function podNamespaces(lab: string): readonly string[] {
  return existsSync("/run/netns") ? readdirSync("/run/netns").filter((name) => name.startsWith(podPrefix(lab))) : [];
}

/** The RuntimeClass of pods that a test starts. */
export const RUNTIME_CLASS = "test";

/** The NICs of a lab. */
export class LabNics extends NicCluster<NeutronApi> {
  readonly cloud: RunningNeutron;
  readonly #lab: string;

  private constructor(lab: string, parts: { readonly api: KubeClient; readonly cloud: RunningNeutron }) {
    super({ api: parts.api, neutron: parts.cloud.api });
    this.cloud = parts.cloud;
    this.#lab = lab;
  }

  static async open(lab: string): Promise<LabNics> {
    const { vpc } = stateOf(lab);
    assert.ok(vpc !== undefined, `lab ${lab} has no VPC`);
    const config = await loadKubeConfig({ path: labPaths(lab).kubeconfig, clock: systemClock });
    const cloud = RunningNeutron.at({ kernel: openKernel() }, vpc.folder);
    return new LabNics(lab, { api: new KubeClient(config, { clock: systemClock }), cloud });
  }

  override logs(): string {
    const { children } = stateOf(this.#lab);
    const ours = children
      .filter(({ name }) => name.startsWith("nic-"))
      .map(({ name }) => readFileSync(labPaths(this.#lab).logOf(name), "utf8").slice(-3000));
    return [...ours, ...this.cloud.hosts.map((host) => this.hostLogs(host))].join("\n--\n");
  }

  /** Returns the last lines of the logs of a host's Neutron agent and switch, and the state of their connection. */
  hostLogs(host: string): string {
    const agent = this.cloud.log(`agent-${host}`).trimEnd().split("\n");
    // Two lines of each second say that it goes round; the last one tells whether it still does.
    const news = agent.filter((line) => !/rpc_loop - iteration:\d+ (started|completed.*'removed': 0}})/.test(line));
    const ovs = this.cloud.ovs(host);
    const columns = ["--columns=target,is_connected,status", "list", "Controller"];
    return [
      `${new Date().toISOString()}: Neutron's agent of ${host}`,
      news.join("\n").slice(-4000),
      `its last line: ${agent.at(-1)}`,
      `ovs-vswitchd of ${host}`,
      ovs.log().slice(-3000),
      textOf("ovs-vsctl", [`--db=unix:${ovs.socketPath}`, "--timeout=5", ...columns]),
    ].join("\n");
  }

  async close(): Promise<void> {
    await this.api.close();
  }
}

/** A node with its agent. */
export interface LiveNode {
  readonly name: string;
  readonly netns: string;
  readonly socket: string;
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

/** The NICs that a pod requests, and the configuration of its plugin. */
export interface LiveOptions {
  readonly nics?: readonly object[];
  readonly vpc?: string;
  /** The virtual machine of the pod. */
  readonly vm?: object;
  /** Further keys of the plugin's configuration. */
  readonly config?: object;
}

/** Disposing removes the lab. */
export class LiveBed implements AsyncDisposable {
  readonly lab: string;
  /** The report of `isthmus lab`, before it left the lab to the tests. */
  readonly report: LabReport;
  readonly nics: LabNics;
  readonly nodes: ReadonlyMap<string, LiveNode>;
  /** Kubeconfig of an administrator, and credentials for Neutron, on the machine. */
  readonly kubeconfig: string;
  readonly folder: string;
  readonly clouds: string;
  #serial = 0;
  /** Pods that were made and have not ended, by their namespaces. */
  readonly #pods = new Map<string, LivePod>();
  readonly #guests = new Set<Running>();
  /** The namespaces of pods that outlive a test. */
  #kept: ReadonlySet<string> = new Set();

  private constructor(lab: string, init: { readonly report: LabReport; readonly nics: LabNics }) {
    this.lab = lab;
    this.report = init.report;
    this.nics = init.nics;
    const { nodes, vpc } = stateOf(lab);
    const paths = labPaths(lab);
    this.kubeconfig = paths.kubeconfig;
    // A run that was killed leaves those of its pods, and a lab removes only its own.
    for (const name of podNamespaces(lab)) deleteNetNs(name);
    this.folder = mkdtempSync(join(tmpdir(), "isthmus-live-"));
    this.clouds = join(this.folder, "clouds.yaml");
    const cloud = { auth_type: "none", auth: { endpoint: vpc?.neutron } };
    writeFileSync(this.clouds, JSON.stringify({ clouds: { test: cloud } }));
    this.nodes = new Map(
      nodes.map(({ name, netns }) => [name, { name, netns, socket: join(paths.dir, name, "vpc.sock") }]),
    );
  }

  /**
   * Runs `isthmus lab --vpc`, which ends when its scenario is over and leaves two nodes. The network `vpc-1` of the tests has 192.168.0.0/24, and
   * gives addresses from .32 to .239.
   */
  static async open(
    lab: string,
    { driver = "openvswitch" }: { readonly driver?: MechanismDriver } = {},
  ): Promise<LiveBed> {
    const size = ["--nodes=2", "--pods=2"];
    const argv = ["lab", "--vpc", `--vpc-driver=${driver}`, "--keep", "--json", `--name=${lab}`, ...size];
    const { code, stdout, stderr } = await isthmus(argv, { timeoutMs: 270_000 });
    try {
      assert.equal(code, 0, `isthmus lab ended with ${code}: ${stderr}${stdout}`);
      const nics = await LabNics.open(lab);
      await nics.policy({});
      const bed = new LiveBed(lab, { report: JSON.parse(stdout) as LabReport, nics });
      // Addresses that tests ask for are none that a port without a wish gets.
      const pool = { start: "192.168.0.32", end: "192.168.0.239" };
      await nics.neutron.makeNetwork({ name: "vpc-1" }, ["192.168.0.0/24"], { allocation_pools: [pool] });
      return bed;
    } catch (error) {
      await removeLab(lab);
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.nics.close();
    await removeLab(this.lab);
    rmSync(this.folder, { recursive: true, force: true });
  }

  get neutron(): NeutronApi {
    return this.nics.neutron;
  }

  /** Neutron's programs on the hosts. */
  get cloud(): RunningNeutron {
    return this.nics.cloud;
  }

  /** Kills the agent of a node; the lab starts another one. Resolves when that one serves. */
  async killAgent(name: string): Promise<void> {
    const { socket } = this.node(name);
    const agent = (): number => stateOf(this.lab).children.find((one) => one.name === `nic-agent-${name}`)?.pid ?? 0;
    const before = agent();
    process.kill(before, "SIGKILL");
    await until(`another agent of ${name} serves`, async () => agent() !== before && (await serves(socket)), {
      seen: () => this.nics.logs(),
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
      runtimeClass: RUNTIME_CLASS,
      ...(options.nics === undefined ? {} : { nics: options.nics }),
      ...(options.vpc === undefined ? {} : { vpc: options.vpc }),
      ...(options.vm === undefined ? {} : { vm: options.vm }),
    });
    return this.sandbox({ name, uid, node });
  }

  /** Makes a sandbox for a pod. */
  sandbox(pod: Pick<LivePod, "name" | "uid" | "node">): LivePod {
    this.#serial += 1;
    const netns = `${podPrefix(this.lab)}${this.#serial}`;
    createNetNs(netns)[Symbol.dispose]();
    execFileSync("ip", ["-n", netns, "link", "set", "lo", "up"]);
    const made = { ...pod, netns, containerId: `c${this.#serial}${pod.name}`.padEnd(64, "0") };
    this.#pods.set(netns, made);
    return made;
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
    return { ...pod, result: await this.add(pod, options.config) };
  }

  /** ADD of a pod that gets its interfaces. Rejects with what all programs have logged. */
  async add(pod: LivePod, config: object = {}): Promise<LiveResult> {
    try {
      return await this.cni("ADD", pod, config);
    } catch (error) {
      if (!(error instanceof CniCallError)) throw error;
      throw new Error(`${error.message}\n${this.nics.logs()}`, { cause: error });
    }
  }

  /** Ends a pod as a kubelet does, and waits until its claim is gone. */
  async end(pod: LivePod, config: object = {}): Promise<void> {
    await this.cni("DEL", pod, config);
    deleteNetNs(pod.netns);
    await this.nics.deletePod(pod.name);
    await this.nics.untilGone(pod.uid);
    this.#pods.delete(pod.netns);
  }

  /** From now on {@link clean} leaves the pods alone that there are. */
  keep(): void {
    this.#kept = new Set(this.#pods.keys());
  }

  /** After a test: its guests and pods have ended, and the agents of Neutron run, so that a failure is the only one. With `all` kept pods end too. */
  async clean({ all = false } = {}): Promise<void> {
    for (const { child } of this.#guests) child.kill("SIGKILL");
    this.#guests.clear();
    for (const host of this.cloud.hosts) await this.cloud.ensureAgent(host);
    if (all) this.#kept = new Set();
    for (const pod of [...this.#pods.values()].filter(({ netns }) => !this.#kept.has(netns))) {
      await this.cni("DEL", pod);
      if (existsSync(`/run/netns/${pod.netns}`)) deleteNetNs(pod.netns);
      if ((await this.nics.findPod(pod.name)) !== undefined) await this.nics.deletePod(pod.name);
      await this.nics.untilGone(pod.uid);
      this.#pods.delete(pod.netns);
    }
  }

  async claim(pod: LivePod): Promise<NicClaim> {
    return (await this.nics.claim(pod.uid)) ?? assert.fail(`${pod.name} has no claim`);
  }

  /** The first address of a NIC. */
  async address(pod: LivePod, nic = "eth0"): Promise<string> {
    return nicOf(await this.claim(pod), nic).ips?.[0]?.ip ?? assert.fail(`${pod.name} has no address`);
  }

  /** Resolves with true if an echo comes back, of up to `tries` that are sent each 0.2 s. */
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

  /**
   * Waits until an echo comes back: on a busy machine a switch in user space needs more than a moment for a port's flows. Rejects with what
   * the pod, the devices of the other node, and Neutron's agents and the switches of both know of it. `told` is added.
   */
  async untilReaches(
    from: LivePod,
    to: LivePod,
    { nic = "eth0", told }: { readonly nic?: string; readonly told?: () => string } = {},
  ): Promise<void> {
    const address = await this.address(to, nic);
    const { netns } = this.node(to.node);
    const seen = (): string =>
      [
        textOf("ip", ["-n", from.netns, "neighbour"]),
        textOf("ip", ["-n", netns, "-s", "link", "show"]),
        textOf("ip", ["netns", "exec", from.netns, "ping", "-c", "2", "-w", "2", address]),
        ...new Set([from.node, to.node].map((node) => this.nics.hostLogs(node))),
        told?.() ?? "",
      ].join("\n--\n");
    await until(`${from.name} of ${from.node} reaches ${to.name} of ${to.node}`, () => this.reaches(from, address), {
      deadlineMs: REACH_MS,
      seen,
    });
  }

  /** Starts a guest on a TAP device of a pod's node, which answers echoes. */
  async guest(pod: LivePod): Promise<Running> {
    const nic = nicOf(await this.claim(pod));
    const device = `tap${nic.portID?.slice(0, 11)}`;
    const script = join(import.meta.dirname, "tap-guest.py");
    const argv = ["/usr/bin/python3", script, device, nic.mac ?? "", await this.address(pod)];
    const guest = start(["nsenter", `--net=/run/netns/${this.node(pod.node).netns}`, ...argv], { timeoutMs: 600_000 });
    this.#guests.add(guest);
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
    return this.cloud
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
}

/** The output of a command, also of one that fails. */
function textOf(command: string, argv: readonly string[]): string {
  const { stdout, stderr } = spawnSync(command, argv, { encoding: "utf8" });
  return `${command} ${argv.join(" ")}\n${stdout}${stderr}`;
}

/** Resolves with true if somebody listens at a UNIX socket. */
function serves(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    probe.once("connect", () => resolve(true)).once("error", () => resolve(false));
    probe.once("connect", () => probe.destroy());
  });
}
