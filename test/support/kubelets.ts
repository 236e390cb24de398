/**
 * A cluster of real programs: Kubernetes' control plane and two kubelets from the folder that ISTHMUS_PEERS names ({@link PEERS}), with
 * Debian's etcd, containerd and runc. Each machine is a network namespace; all are on the bridge of the control plane.
 *
 * Owns: programs and files of the control plane, the nodes, until it is disposed. Does not know: what is applied.
 *
 * ```ts
 * await using cluster = await Kubelets.start();
 * await cluster.node("n1").importImage(archive);
 * await cluster.kubectl("get", "nodes");
 * await cluster.node("n1").reboot();
 * ```
 */
import type { ChildProcess } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { makeCertificates } from "#test/certificates";
import { hasCgroup, removeCgroups } from "#test/cgroups";
import { DEBIAN, makeImage, PROGRAMS, takeTurn } from "#test/containerd";
import {
  ADDRESSES,
  addAddresses,
  addNetns,
  deleteNetns,
  ip,
  KubeletNode,
  kill,
  kubeconfigOf,
  NODES,
  type NodeName,
  netnsOf,
  PLUGINS,
  type Place,
  spawnLogged,
} from "#test/kubelet-node";
import { BOX, containerd, crio, type Runtime } from "#test/kubelet-runtime";
import { start, until } from "#test/lab";
import { peer, peersMissing } from "#test/real-api-server";

/** The programs that the folder of ISTHMUS_PEERS must have. */
const PEERS = ["kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler"] as const;
const KUBECTL = join(DEBIAN, "../debian-sid/usr/bin/kubectl");
const SERVICES = {
  4: { range: "10.96.0.0/16", kubernetes: "10.96.0.1" },
  6: { range: "fd00:96::/112", kubernetes: "fd00:96::1" },
} as const;
/** The token of the administrator. */
export const ADMIN = "admin-token";
/** A busy machine starts these programs slowly. */
const START_MS = 90_000;

/** The reason to skip a test that needs this cluster, or false. */
export function kubeletsMissing(): string | false {
  if (!existsSync(join(PLUGINS, "portmap"))) return `package: containernetworking-plugins is not in ${PLUGINS}`;
  return peersMissing(...PEERS);
}

/** The programs of a runtime, in a folder of ISTHMUS_PEERS. */
const RUNTIMES = {
  containerd: ["containerd", "containerd-shim-runc-v2", "ctr"],
  crio: ["crio", "pinns", "copyimg"],
} as const;

/** The reason to skip a test that needs such a runtime besides, or false. */
export function runtimeMissing(name: keyof typeof RUNTIMES): string | false {
  return kubeletsMissing() || peersMissing(...RUNTIMES[name].map((program) => join(name, program)));
}

/** The containerd, or CRI-O, of ISTHMUS_PEERS. */
export function peerRuntime(name: keyof typeof RUNTIMES): Runtime {
  return name === "crio" ? crio(peer(name)) : containerd(`${peer(name)}:${PROGRAMS}`);
}

/** The differences to a cluster whose machines reach each other. */
export interface KubeletsOptions {
  /** The families of machines and Services; the first one is the primary one. Default: IPv4. */
  readonly families?: Place["families"];
  /** Default: Debian's containerd. */
  readonly runtime?: Runtime;
  /** The address at which nodes find the API server, an address of its certificate besides its own ones. Default: the primary one. */
  readonly server?: string;
  /** Runs before the API server starts, when the machine of the control plane is there; further flags of kube-apiserver. */
  readonly prepare?: (cluster: Kubelets) => Promise<readonly string[]>;
  /** Runs before a node starts; the images that it gets first, as archives. */
  readonly prepareNode?: (node: KubeletNode) => readonly string[];
}

/** Disposing ends and removes everything, in whatever state it is. */
export class Kubelets implements AsyncDisposable {
  readonly folder: string;
  readonly kubeconfig: string;
  readonly #place: Place;
  readonly #nodes = new Map<NodeName, KubeletNode>();
  readonly #closers = new AsyncDisposableStack();
  #api: ChildProcess | undefined;

  private constructor(turn: AsyncDisposable, place: Pick<Place, "families" | "runtime">) {
    this.#closers.use(turn);
    this.folder = mkdtempSync(join(tmpdir(), "isthmus-kubelets-"));
    this.#closers.defer(() => rmSync(this.folder, { recursive: true, force: true }));
    // Containerd 1.6 makes it, and the containers' cgroups in it.
    if (!hasCgroup("/k8s.io")) this.#closers.defer(() => removeCgroups("/k8s.io"));
    this.#place = { folder: this.folder, prefix: `isthmus-kubelets-${process.pid}`, ...place };
    this.kubeconfig = join(this.folder, "admin.kubeconfig");
  }

  /** Resolves when both kubelets have registered their Nodes, which have no network yet. */
  static async start(options: KubeletsOptions = {}): Promise<Kubelets> {
    const { families = [4], runtime = containerd(PROGRAMS), prepare, prepareNode } = options;
    const { server = ADDRESSES[families[0]].cp } = options;
    const cluster = new Kubelets(await takeTurn(), { families, runtime });
    try {
      cluster.#makeControlPlane(server);
      await cluster.#startControlPlane((await prepare?.(cluster)) ?? []);
      const box = makeImage(cluster.folder, BOX, ["sleep", "1000000000"]);
      for (const name of NODES) {
        const node = new KubeletNode(cluster.#place, name);
        cluster.#nodes.set(name, node);
        cluster.#closers.defer(() => node.shutDown());
        await node.boot([box, ...(prepareNode?.(node) ?? [])]);
      }
      for (const name of NODES)
        await until(
          `Node ${name} is there`,
          async () => (await cluster.kubectl("get", "nodes", "-o", "name")).includes(name),
          { deadlineMs: START_MS, everyMs: 500, seen: () => cluster.node(name).said() },
        );
      return cluster;
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** The control plane's address of the primary family. */
  get address(): string {
    return ADDRESSES[this.#place.families[0]].cp;
  }

  node(name: NodeName): KubeletNode {
    const node = this.#nodes.get(name);
    if (node === undefined) throw new Error(`no node ${name}`);
    return node;
  }

  /** The name of the network namespace of a node, or of the control plane's machine. */
  netns(machine: NodeName | "cp"): string {
    return netnsOf(this.#place, machine);
  }

  /** The start of a command that runs another one on the machine of the control plane, which is outside of the pod network. */
  get outside(): readonly string[] {
    return ["nsenter", `--net=/run/netns/${this.netns("cp")}`];
  }

  /** Runs a command outside; what it printed. Throws when its exit code is not 0. */
  async run(argv: readonly string[], input = ""): Promise<string> {
    const { code, stdout, stderr } = await this.#run(argv, input);
    if (code !== 0) throw new Error(`${argv.join(" ")} ended with ${code}: ${stderr}${stdout}`);
    return stdout;
  }

  kubectl(...args: readonly string[]): Promise<string> {
    return this.run([KUBECTL, ...args]);
  }

  /** The start of a command of kubectl, for {@link run}. */
  get argvOfKubectl(): readonly string[] {
    return [KUBECTL];
  }

  /** The same, with any exit code. */
  tryKubectl(...args: readonly string[]): ReturnType<typeof start>["ended"] {
    return this.#run([KUBECTL, ...args], "");
  }

  #run(argv: readonly string[], input: string): ReturnType<typeof start>["ended"] {
    const env = { KUBECONFIG: this.kubeconfig, HOME: this.folder };
    return start([...this.outside, ...argv], { env, timeoutMs: 180_000, input: Buffer.from(input) }).ended;
  }

  /** Applies manifests, as text. */
  apply(text: string): Promise<string> {
    return this.run([KUBECTL, "apply", "-f", "-"], text);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#closers.disposeAsync();
  }

  /** The machine of the control plane and its files. */
  #makeControlPlane(server: string): void {
    addNetns(this.#place, "cp");
    this.#closers.defer(() => deleteNetns(this.#place, "cp"));
    const { folder } = this;
    ip(this.#place, "cp", "link add br0 type bridge");
    ip(this.#place, "cp", "link set br0 up");
    addAddresses(this.#place, "cp", "br0");
    const { families } = this.#place;
    const own = families.flatMap((family) => [ADDRESSES[family].cp, SERVICES[family].kubernetes]);
    const hosts = [...new Set([...own, server]), "127.0.0.1", "kubernetes.default.svc"];
    const { ca, pairs } = makeCertificates("kubelets", { api: hosts });
    const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const users = NODES.map((name) => `token-${name},system:node:${name},${name},"system:nodes"\n`);
    const files = {
      "ca.crt": ca,
      "api.crt": pairs.api.cert,
      "api.key": pairs.api.key,
      "sa.key": privateKey.export({ type: "pkcs1", format: "pem" }),
      "tokens.csv": `${ADMIN},admin,admin,"system:masters"\n${users.join("")}`,
      "admin.kubeconfig": kubeconfigOf(folder, ADMIN, this.address),
      ...Object.fromEntries(NODES.map((name) => [`${name}.kubeconfig`, kubeconfigOf(folder, `token-${name}`, server)])),
    };
    for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  }

  async #startControlPlane(api: readonly string[]): Promise<void> {
    const { folder } = this;
    this.#spawn("etcd", join(DEBIAN, "usr/bin/etcd"), [`--data-dir=${join(folder, "etcd")}`, "--unsafe-no-fsync"]);
    await this.#startApi(api);
    const common = [`--kubeconfig=${this.kubeconfig}`, "--leader-elect=false"];
    this.#spawn("kube-controller-manager", peer("kube-controller-manager"), [
      ...common,
      `--service-account-private-key-file=${join(folder, "sa.key")}`,
      `--root-ca-file=${join(folder, "ca.crt")}`,
    ]);
    this.#spawn("kube-scheduler", peer("kube-scheduler"), common);
  }

  /** Kills the API server and starts it with these further flags in place of those that it had. */
  async restartApi(flags: readonly string[]): Promise<void> {
    if (this.#api !== undefined) await kill(this.#api);
    await this.#startApi(flags);
  }

  /** Resolves when it is ready. */
  async #startApi(flags: readonly string[]): Promise<void> {
    const { folder } = this;
    const { families } = this.#place;
    this.#api = this.#spawn("kube-apiserver", peer("kube-apiserver"), [
      "--etcd-servers=http://127.0.0.1:2379",
      "--secure-port=6443",
      `--cert-dir=${join(folder, "certs")}`,
      `--tls-cert-file=${join(folder, "api.crt")}`,
      `--tls-private-key-file=${join(folder, "api.key")}`,
      `--token-auth-file=${join(folder, "tokens.csv")}`,
      "--authorization-mode=Node,RBAC",
      "--enable-admission-plugins=NodeRestriction",
      "--bind-address=::",
      `--service-cluster-ip-range=${families.map((family) => SERVICES[family].range).join()}`,
      "--service-account-issuer=https://kubernetes.default.svc",
      `--service-account-key-file=${join(folder, "sa.key")}`,
      `--service-account-signing-key-file=${join(folder, "sa.key")}`,
      `--advertise-address=${this.address}`,
      "--kubelet-preferred-address-types=InternalIP",
      "--allow-privileged=true",
      // No service-proxy runs beside it: it calls webhooks at the addresses of their pods.
      "--enable-aggregator-routing=true",
      ...flags,
    ]);
    const isReady = async (): Promise<boolean> =>
      (await start([...this.outside, KUBECTL, `--kubeconfig=${this.kubeconfig}`, "get", "ns", "default"]).ended)
        .code === 0;
    const seen = (): string => readFileSync(join(folder, "kube-apiserver.log"), "utf8").slice(-2000);
    await until("the API server is ready", isReady, { deadlineMs: START_MS, everyMs: 500, seen });
  }

  #spawn(name: string, program: string, flags: readonly string[]): ChildProcess {
    const log = openSync(join(this.folder, `${name}.log`), "a");
    const child = spawnLogged([...this.outside, program, ...flags], log);
    this.#closers.defer(() => kill(child));
    return child;
  }
}
