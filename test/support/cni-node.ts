/**
 * A node for foreign programs that use the shipped CNI executable: a network namespace with `coild` and `coil-ipam-controller`,
 * the embedded API server with a dual-stack pool, and a namespace outside that reaches the node. Needs root and a build.
 *
 * Owns: all of these, removed when it is disposed. Does not know: container runtimes, routing daemons.
 *
 * ```ts
 * await using node = await CniNode.open("mine");
 * const uid = await node.createPod("web");
 * await runtime.run({ netns: node.netns, plugin: node.plugin, config: node.config, uid });
 * ```
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { callGrpc } from "#features/cni";
import { openKernel } from "#kernel/net";
import { listenTcp } from "#kernel/socket";
import { type Draft, isKubeError, KubeClient, loadKubeConfig, resources } from "#kube/client";
import { type AddressBlock, type AddressPoolSpec, coilCrds, coilResources } from "#kube/coil";
import { type ApiServer, type SeedObject, startApiServer } from "#lab/api-server";
import { ACCOUNT_PROGRAMS, type AccountProgram, accountOf, LAB_RIGHTS } from "#lab/host";
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { CNI_SERVICE, decodeAddResponse, EMPTY_CNI_ARGS, encodeCniArgs } from "#wire/cnirpc";

const { addressBlocks, addressPools } = coilResources;
/** The node's name in the API, and its addresses. */
export const NODE = "cni-node";
export const NODE_IPV4 = "198.51.100.2";
export const NODE_IPV6 = "2001:db8:1::2";
/** Addresses of the namespace outside, on the same link. */
export const OUTSIDE_IPV4 = "198.51.100.1";
export const OUTSIDE_IPV6 = "2001:db8:1::1";
const POOL: AddressPoolSpec = { blockSizeBits: 2, subnets: [{ ipv4: "10.210.0.0/26", ipv6: "fd00:210::/122" }] };

/** An attachment for {@link CniNode.call}. `netns` is the name of the pod's network namespace, `namespace` that of Kubernetes. */
export interface CniCall {
  readonly containerId: string;
  readonly netns: string;
  /** The folder of the namespace as the runtime names it; /run/netns unless given. */
  readonly folder?: string;
  readonly pod: string;
  readonly namespace?: string;
  /** The socket of another `coild` than the node's. */
  readonly socket?: string;
}

/** The time that a start may take: the emulated processor of the vm tier takes 6 s to start node, and more beside other work. */
const SERVES_MS = 300_000;

/** Disposing ends the programs and removes everything. */
export class CniNode implements AsyncDisposable {
  /** Names of the node's namespace and of the one outside. */
  readonly netns: string;
  readonly outside: string;
  readonly folder: string;
  readonly server: ApiServer;
  readonly api: KubeClient;
  /** The CNI executable. */
  readonly plugin = join(ISTHMUS, "../cni/coil");
  /** The socket of `coild`. */
  readonly socket: string;
  /** More environment of each `coild` that starts from now on. */
  coildEnv: Readonly<Record<string, string>> = {};
  /** Words before each command on the node from now on, such as those that give it a view of files of its own. */
  prefix: readonly string[] = [];
  readonly #running: Running[] = [];
  #coild: Running | undefined;

  private constructor(init: Pick<CniNode, "netns" | "outside" | "folder" | "server" | "api">) {
    this.netns = init.netns;
    this.outside = init.outside;
    this.folder = init.folder;
    this.server = init.server;
    this.api = init.api;
    this.socket = join(init.folder, "coild.sock");
  }

  /** Resolves when `coild` serves, with these flags of it. Programs have the rights of their manifests, those of `rights` the ones of this file. `ipamFlags` are more of `coil-ipam-controller`. */
  static async open(
    name: string,
    flags: readonly string[] = [],
    rights?: string,
    ipamFlags: readonly string[] = [],
    /** Called when the node is there, before its programs start. */
    onMade: (node: CniNode) => void | Promise<void> = () => undefined,
  ): Promise<CniNode> {
    const folder = mkdtempSync(join(tmpdir(), `isthmus-${name}-`));
    const [netns, outside] = ["node", "outside"].map((one) => `isthmus-${name}-${process.pid}-${one}`) as [
      string,
      string,
    ];
    for (const one of [netns, outside]) openKernel().createNetNs(one)[Symbol.dispose]();
    const ip = (...args: readonly string[]): unknown => execFileSync("ip", args);
    for (const one of [netns, outside]) ip("-n", one, "link", "set", "lo", "up");
    ip("-n", netns, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", outside);
    for (const [one, addresses] of [
      [netns, [`${NODE_IPV4}/24`, `${NODE_IPV6}/64`]],
      [outside, [`${OUTSIDE_IPV4}/24`, `${OUTSIDE_IPV6}/64`]],
    ] as const) {
      ip("-n", one, "link", "set", "eth0", "up");
      for (const address of addresses) {
        ip("-n", one, "address", "add", address, "dev", "eth0", ...(address.includes(":") ? ["nodad"] : []));
      }
    }
    const fds = [netns, outside].map((one) => {
      using opened = openKernel().openNetNs({ name: one });
      return listenTcp(IpAddress.parse("127.0.0.1"), 6443, { netns: opened });
    });
    const listen = [{ host: "127.0.0.1", port: 0 }, ...fds.map((fd) => ({ fd, host: "127.0.0.1" }))];
    const accounts = ACCOUNT_PROGRAMS.map((program) => [program, accountOf(program, NODE)] as const);
    const tokens = { admin: { name: "admin", groups: ["system:masters"] }, ...Object.fromEntries(accounts) };
    const server = await startApiServer({
      listen,
      // kubectl sends its token nowhere else.
      tls: "self-signed",
      tokens,
      log: nullLogger,
      clock: systemClock,
    });
    const given = rights === undefined ? [] : readObjects(rights);
    const isGiven = (one: SeedObject): boolean =>
      given.some(({ kind, metadata }) => kind === one.kind && metadata.name === one.metadata.name);
    server.seed([...LAB_RIGHTS.filter((one) => !isGiven(one)), ...given]);
    const [here = "", inNode = ""] = server.urls;
    const own = join(folder, "own-kubeconfig");
    writeFileSync(own, server.kubeconfig({ server: here, token: "admin" }));
    writeFileSync(join(folder, "kubeconfig"), server.kubeconfig({ server: inNode, token: "admin" }));
    for (const program of ACCOUNT_PROGRAMS)
      writeFileSync(join(folder, `${program}-kubeconfig`), server.kubeconfig({ server: inNode, token: program }));
    const api = new KubeClient(await loadKubeConfig({ path: own, clock: systemClock }), { clock: systemClock });
    const node = new CniNode({ netns, outside, folder, server, api });
    try {
      await onMade(node);
      await node.#start(flags, ipamFlags);
      return node;
    } catch (error) {
      await node[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #start(flags: readonly string[], ipamFlags: readonly string[]): Promise<void> {
    this.server.seed(coilCrds as unknown as readonly SeedObject[]);
    const made = await this.api.create(resources.nodes, { metadata: { name: NODE } });
    const addresses = [NODE_IPV4, NODE_IPV6].map((address) => ({ type: "InternalIP" as const, address }));
    await this.api.replaceStatus(resources.nodes, { ...made, status: { addresses } });
    await until("the pool is there", async () => {
      try {
        await this.api.create(addressPools, { metadata: { name: "default" }, spec: POOL });
        return true;
      } catch (error) {
        if (isKubeError(error, "not-found")) return false;
        throw error;
      }
    });
    this.run("coil-ipam-controller", "--webhook-addr=none", ...ipamFlags);
    await this.startCoild(...flags);
  }

  /** Resolves when it serves. */
  async startCoild(...flags: readonly string[]): Promise<void> {
    const coild = this.run("coild", `--socket=${this.socket}`, ...flags);
    await until("coild serves", () => /"(serving|coild serves calls behind [^"]*)"/.test(coild.said()), {
      deadlineMs: SERVES_MS,
      seen: coild.said,
    });
    this.#coild = coild;
  }

  /** The process id of `coild`. */
  get coildPid(): number {
    const pid = this.#coild?.child.pid;
    if (pid === undefined) throw new Error("coild is not running");
    return pid;
  }

  /** SIGTERM; resolves when it has ended. */
  async endCoild(): Promise<void> {
    this.#coild?.child.kill("SIGTERM");
    const ended = await this.#coild?.ended;
    if (ended?.code !== 0) throw new Error(`coild ended with ${ended?.code}: ${ended?.stderr}`);
  }

  /** `kill -9`; resolves when it has ended. */
  async killCoild(): Promise<void> {
    this.#coild?.child.kill("SIGKILL");
    await this.#coild?.ended;
  }

  /** Resolves when `coild` has ended by itself, or was killed. */
  async coildEnded(): Promise<void> {
    await this.#coild?.ended;
  }

  get isCoildGone(): boolean {
    const { exitCode, signalCode } = this.#coild?.child ?? {};
    return exitCode !== null || signalCode !== null;
  }

  /** Starts a program of the suite on this node, with the rights of its account. */
  run(program: AccountProgram, ...flags: readonly string[]): Running {
    const command = [ISTHMUS, program, `--kubeconfig=${join(this.folder, `${program}-kubeconfig`)}`, ...flags];
    // As a service manager names it: what a program keeps in /run is below the folder of this node.
    const own = { RUNTIME_DIRECTORY: join(this.folder, "run/isthmus", program) };
    const env = { COIL_NODE_NAME: NODE, ...own, ...(program === "coild" ? this.coildEnv : {}) };
    const running = start(this.inside(...command), { env, timeoutMs: 600_000 });
    this.#running.push(running);
    return running;
  }

  /** The command line that runs a command on the node. */
  inside(...command: readonly string[]): string[] {
    return ["nsenter", `--net=/run/netns/${this.netns}`, ...this.prefix, ...command];
  }

  /** The output of `ip` in the node. */
  ip(...args: readonly string[]): string {
    return execFileSync("ip", ["-n", this.netns, ...args], { encoding: "utf8" });
  }

  /** Makes a Pod of this node; its UID. */
  async createPod(name: string, namespace = "default"): Promise<string> {
    const spec = { nodeName: NODE, containers: [{ name: "c", image: "none" }] };
    const pod = await this.api.create(resources.pods, {
      metadata: { namespace, name },
      spec,
    } as unknown as Draft<never>);
    return (pod as { readonly metadata: { readonly uid: string } }).metadata.uid;
  }

  /** Calls `coild` as the CNI executable does, for an interface `eth0`. Returns the addresses of an ADD. */
  async call(
    method: "Add" | "Del" | "Check",
    { containerId, netns, folder = "/run/netns", pod, namespace = "default", socket = this.socket }: CniCall,
  ): Promise<string[]> {
    const args = { K8S_POD_NAMESPACE: namespace, K8S_POD_NAME: pod };
    const stdinData = new TextEncoder().encode(
      JSON.stringify({ cniVersion: "1.0.0", name: "k8s-pod-network", type: "coil" }),
    );
    const message = { ...EMPTY_CNI_ARGS, containerId, netns: `${folder}/${netns}`, ifname: "eth0", args, stdinData };
    const answer = await callGrpc(socket, `/${CNI_SERVICE}/${method}`, encodeCniArgs(message), {
      timeoutMs: 30_000,
    });
    if (method !== "Add") return [];
    const result = JSON.parse(new TextDecoder().decode(decodeAddResponse(answer))) as {
      readonly ips: readonly { readonly address: string }[];
    };
    return result.ips.map(({ address }) => address.split("/")[0] ?? "");
  }

  /** The node's blocks. */
  async blocks(): Promise<readonly AddressBlock[]> {
    return (await this.api.listAll(addressBlocks)).items;
  }

  /** Appends a subnet to the pool `default`. */
  async growDefaultPool(subnet: { readonly ipv4: string; readonly ipv6: string }): Promise<void> {
    const stored = await this.api.get(addressPools, { name: "default" });
    const subnets = [...(stored.spec?.subnets ?? []), subnet];
    await this.api.patch(addressPools, { name: "default" }, { type: "merge", body: { spec: { subnets } } });
  }

  /** The remaining links of attachments. */
  attachments(): string[] {
    return this.ip("-o", "link", "show")
      .split("\n")
      .filter((line) => line.includes("COIL"));
  }

  /** The logs of all programs. */
  said(): string {
    return this.#running.map((one) => one.said()).join("");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const one of this.#running) one.child.kill("SIGKILL");
    await Promise.all(this.#running.map((one) => one.ended));
    await this.api.close();
    await this.server[Symbol.asyncDispose]();
    for (const name of [this.netns, this.outside]) openKernel().deleteNetNs(name);
    rmSync(this.folder, { recursive: true, force: true });
  }
}

function readObjects(file: string): readonly SeedObject[] {
  return parseAllDocuments(readFileSync(file, "utf8")).map((one) => one.toJS() as SeedObject);
}
