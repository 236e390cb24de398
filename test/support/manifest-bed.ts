/**
 * A cluster of one or two machines for the files of `deploy`: the embedded API server with rights, controllers of workloads, and nodes that run
 * Pods as their manifests say. `node` is a machine of the cluster; `outside` is on the same link, and can be a machine of the control plane.
 *
 * Owns: namespaces, folder, API server, nodes, and removing all of it. Does not know: what is applied.
 *
 * ```ts
 * const bed = await ManifestBed.open(t, "pods");
 * await bed.apply("pods.yaml");
 * await bed.ready("coild", "coil-ipam-controller");
 * const pod = await bed.run("p");
 * ```
 */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import type { TestContext } from "node:test";
import { credentials } from "@grpc/grpc-js";
import { parse } from "yaml";
import { systemClock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { openKernel } from "#kernel/net";
import { listenTcp } from "#kernel/socket";
import { type Draft, isKubeError, KubeClient, loadKubeConfig, type Pod, resources } from "#kube/client";
import { type AddressPool, coilResources } from "#kube/coil";
import { type Authenticator, type ReviewedToken, startApiServer } from "#lab/api-server";
import { connectInside } from "#lab/inside";
import { runWorkloads } from "#lab/workloads";
import { makeCertificates } from "#test/certificates";
import { openFrontend } from "#test/grpc-frontend";
import { start, until } from "#test/lab";
import { layImage, ManifestNode, type PlacedPod } from "#test/manifest-node";

const root = join(import.meta.dirname, "../..");

/** The address of the Service `kubernetes`, and one of the API server that needs no Services; both on every machine, with {@link API_PORT} at the second. */
const KUBERNETES = "10.96.0.1";
export const API = "203.0.113.1";
export const API_PORT = 6443;
/** The address of the API server behind the tunnel, for nodes. */
export const BIND = "10.255.255.1";
/** Addresses of the machines. */
export const AT = {
  node: { 4: "198.51.100.2", 6: "2001:db8:1::2" },
  outside: { 4: "198.51.100.1", 6: "2001:db8:1::1" },
} as const;
export const FAMILIES: readonly IpFamily[] = [4, 6];
/** Ports of the Services that admission webhooks are called at. */
const WEBHOOKS: Readonly<Record<string, number>> = {
  "coilv2-ipam-webhook-service": 9443,
  "coilv2-egress-webhook-service": 9444,
  "nic-webhook-service": 9445,
};
const NODE_NAME = "authentication.kubernetes.io/node-name";
const REQUEST_MS = 2000;
/** A command of kubectl may take this long, in milliseconds: the API servers of all variants are in one process. */
const KUBECTL_MS = 240_000;

/** A machine that is a Node. */
export interface BedNode {
  readonly labels?: Readonly<Record<string, string>>;
  readonly taints?: readonly { readonly key: string; readonly effect: "NoSchedule" }[];
}

/** Options of a bed. */
export interface BedOptions {
  /** The Node of the machine outside; `static`: it has static pods alone, and no Node. Default: it runs nothing. */
  readonly outside?: BedNode | "static";
  readonly node?: BedNode | "static";
}

type Machine = "node" | "outside";

/** Everything is removed at the end of the test. */
export class ManifestBed {
  readonly api: KubeClient;
  /** Folder of temporary files. */
  readonly folder: string;
  readonly #prefix: string;
  readonly #kubeconfigs: (token: string, server: string) => string;
  readonly #nodes = new Map<Machine, ManifestNode>();
  readonly #closers: (() => unknown)[];
  /** The authority of the API server's certificate, and this, which is of the machine outside too. */
  readonly ca: string;
  readonly pair: { readonly cert: string; readonly key: string };

  private constructor(
    api: KubeClient,
    parts: Pick<ManifestBed, "folder" | "ca" | "pair"> & {
      readonly prefix: string;
      readonly kubeconfigs: (token: string, server: string) => string;
      readonly closers: (() => unknown)[];
    },
  ) {
    this.api = api;
    this.folder = parts.folder;
    this.ca = parts.ca;
    this.pair = parts.pair;
    this.#prefix = parts.prefix;
    this.#kubeconfigs = parts.kubeconfigs;
    this.#closers = parts.closers;
  }

  static async open(t: TestContext, name: string, options: BedOptions = {}): Promise<ManifestBed> {
    const kernel = openKernel();
    const folder = mkdtempSync(join(tmpdir(), `isthmus-manifests-${name}-`));
    const stop = new AbortController();
    const closers: (() => unknown)[] = [];
    t.after(async () => {
      stop.abort();
      for (const close of closers.toReversed()) await close();
      rmSync(folder, { recursive: true, force: true });
    });
    const prefix = `isthmus-manifests-${process.pid}-${name}`;
    const ip = (machine: Machine, ...args: readonly string[]): string =>
      execFileSync("ip", ["-n", `${prefix}-${machine}`, ...args], { encoding: "utf8" });
    const fds: { readonly fd: number; readonly host: string }[] = [];
    for (const machine of ["node", "outside"] as const) {
      kernel.createNetNs(`${prefix}-${machine}`)[Symbol.dispose]();
      closers.push(() => kernel.deleteNetNs(`${prefix}-${machine}`));
      ip(machine, "link", "set", "lo", "up");
      for (const address of [KUBERNETES, API]) ip(machine, "address", "add", `${address}/32`, "dev", "lo");
      using netns = kernel.openNetNs({ name: `${prefix}-${machine}` });
      fds.push({ fd: listenTcp(IpAddress.parse(KUBERNETES), 443, { netns }), host: KUBERNETES });
      fds.push({ fd: listenTcp(IpAddress.parse(API), API_PORT, { netns }), host: API });
      // Where a proxy-server beside it looks for it.
      fds.push({ fd: listenTcp(IpAddress.parse("127.0.0.1"), API_PORT, { netns }), host: "127.0.0.1" });
    }
    ip("node", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", `${prefix}-outside`);
    for (const machine of ["node", "outside"] as const) {
      const { 4: v4, 6: v6 } = AT[machine];
      ip(machine, "link", "set", "eth0", "up");
      ip(machine, "address", "add", `${v4}/24`, "dev", "eth0");
      ip(machine, "address", "add", `${v6}/64`, "dev", "eth0", "nodad");
    }
    ip("node", "route", "add", "default", "via", AT.outside[4]);
    ip("node", "-6", "route", "add", "default", "via", AT.outside[6]);

    // What kube-proxy does for the Services of webhooks.
    const ports = new Map<string, number>();
    for (const [service, port] of Object.entries(WEBHOOKS)) {
      const relay = createServer((socket) => {
        socket.on("error", () => socket.destroy());
        const at = { address: IpAddress.parse(AT.node[4]), port };
        connectInside({ name: `${prefix}-node` }, at, { timeoutMs: REQUEST_MS }).then(
          (to) => {
            to.on("error", () => socket.destroy());
            socket.on("close", () => to.destroy());
            socket.pipe(to).pipe(socket);
          },
          () => socket.destroy(),
        );
      }).listen(0, "127.0.0.1");
      await once(relay, "listening");
      closers.push(() => relay.close());
      ports.set(service, (relay.address() as { readonly port: number }).port);
    }
    const hosts = ["localhost", "127.0.0.1", KUBERNETES, API, BIND, AT.outside[4]];
    const { ca, pairs } = makeCertificates("cluster", { apiserver: hosts });
    const server = await startApiServer({
      listen: [{ host: "127.0.0.1", port: 0 }, ...fds],
      tls: { ...pairs.apiserver, ca },
      authenticator,
      reviewedTokens,
      webhooks: ({ name: service }) => {
        const port = ports.get(service);
        return port === undefined ? undefined : { host: "127.0.0.1", port };
      },
      log: nullLogger,
      clock: systemClock,
    });
    closers.push(() => server[Symbol.asyncDispose]());
    const kubeconfigs = (token: string, at: string): string => server.kubeconfig({ server: at, token });
    const text = kubeconfigs("admin", server.urls[0] ?? "");
    const kubeconfig = join(folder, "kubeconfig");
    writeFileSync(kubeconfig, text);
    const api = new KubeClient(await loadKubeConfig({ path: kubeconfig, clock: systemClock }), { clock: systemClock });
    closers.push(() => api.close());
    const bed = new ManifestBed(api, { folder, ca, pair: pairs.apiserver, prefix, kubeconfigs, closers });
    // As every cluster has it.
    await bed.makeService("kubernetes", { clusterIP: KUBERNETES, port: 443 }, { address: API, port: API_PORT });
    const workloads = runWorkloads({ api, log: nullLogger, clock: systemClock }, { signal: stop.signal });
    closers.push(() => workloads.catch(() => undefined));
    await bed.#addNode("node", options.node ?? {});
    if (options.outside !== undefined) await bed.#addNode("outside", options.outside);
    return bed;
  }

  async #addNode(machine: Machine, as: BedNode | "static"): Promise<void> {
    if (as !== "static") {
      const labels = { "kubernetes.io/os": "linux", ...as.labels };
      await this.makeNode(machine, { labels, taints: as.taints ?? [] }, AT[machine], "True");
    }
    const folder = join(this.folder, machine);
    mkdirSync(folder);
    const node = new ManifestNode(this.api, {
      name: machine,
      netns: this.netns(machine),
      addresses: Object.values(AT[machine]),
      folder,
      image: image(),
      apiServer: { host: KUBERNETES, port: 443, ca: this.ca },
      tokenOf: (namespace, account, audience = "") => [namespace, account, machine, audience].join("/"),
    });
    this.#nodes.set(machine, node);
    this.#closers.push(() => node[Symbol.asyncDispose]());
  }

  /** A Node object. */
  async makeNode(
    name: string,
    { labels = {}, taints = [] }: BedNode,
    at: Readonly<Record<IpFamily, string>>,
    ready: "True" | "False",
  ): Promise<void> {
    const made = await this.api.create(resources.nodes, { metadata: { name, labels }, spec: { taints } } as never);
    const addresses = FAMILIES.map((family) => ({ type: "InternalIP" as const, address: at[family] }));
    const conditions = [{ type: "Ready", status: ready }];
    await this.api.replaceStatus(resources.nodes, { ...made, status: { addresses, conditions } } as never);
  }

  /** The name of a machine's network namespace. */
  netns(machine: Machine): string {
    return `${this.#prefix}-${machine}`;
  }

  ip(machine: Machine, ...args: readonly string[]): string {
    return execFileSync("ip", ["-n", this.netns(machine), ...args], { encoding: "utf8" });
  }

  node(machine: Machine = "node"): ManifestNode {
    return this.#nodes.get(machine) ?? assert.fail(machine);
  }

  /** Runs before the machines are removed, the last one first. */
  onEnd(close: () => unknown): void {
    this.#closers.push(close);
  }

  /** The path of a file of a machine. */
  path(machine: Machine, path: string): string {
    return join(this.folder, machine, "host", path);
  }

  write(machine: Machine, path: string, text: string): void {
    mkdirSync(dirname(this.path(machine, path)), { recursive: true });
    writeFileSync(this.path(machine, path), text);
  }

  /** A kubeconfig with the credentials of a user, for the API server at the address that needs no Services. */
  kubeconfigOf(user: string): string {
    return this.#kubeconfigs(`user/${user}`, `https://${API}:${API_PORT}`);
  }

  /** The command of a file's head, which is run as it stands, with `edit` in place of an operator. Strict validation refuses unknown fields, and warns of none. */
  async apply(file: string, edit: (text: string) => string = (text) => text): Promise<void> {
    const text = readFileSync(join(root, "deploy", file), "utf8");
    const [, command = ""] = /^# {5}(kubectl .*)$/m.exec(text) ?? assert.fail(`${file} has no command in its head`);
    mkdirSync(join(this.folder, "deploy"), { recursive: true });
    writeFileSync(join(this.folder, "deploy", file), edit(text));
    await this.#kubectl(command);
  }

  /** Applies `deploy/crds`. */
  async applyCrds(): Promise<void> {
    await this.#kubectl(`kubectl apply -f ${join(root, "deploy/crds")}`);
  }

  /** Applies a text. */
  async applyText(name: string, text: string): Promise<void> {
    writeFileSync(join(this.folder, name), text);
    await this.#kubectl(`kubectl apply -f ${name}`);
  }

  async #kubectl(command: string): Promise<void> {
    const env = { KUBECONFIG: join(this.folder, "kubeconfig") };
    const { code, stderr } = await start(["sh", "-ec", `cd ${this.folder}; ${command} --validate=strict`], {
      env,
      timeoutMs: KUBECTL_MS,
    }).ended;
    assert.equal(code, 0, `${command}: ${stderr}`);
    assert.doesNotMatch(stderr, /warning/i);
  }

  /** The API server's object of a static pod, as kubelet makes it, from a file; without one, the mirror is not needed. */
  async runStatic(machine: Machine, text: string): Promise<void> {
    const pod = parse(text) as Pod;
    const { name, namespace, labels } = pod.metadata;
    await this.api.create(resources.pods, {
      metadata: { name: `${name}-${machine}`, namespace, labels },
      spec: { ...pod.spec, nodeName: machine },
    } as unknown as Draft<Pod>);
  }

  /** Returns the parts that are not ready, and the logs of all containers. */
  said(): string {
    return Array.from(this.#nodes.values(), (node) => `${node.unready().join(", ")}\n${node.said()}`).join("\n");
  }

  /** Waits until a pod of each name's beginning is ready. */
  async ready(...names: readonly string[]): Promise<void> {
    const isThere = (name: string): boolean =>
      Array.from(this.#nodes.values()).some((node) => node.ready().some((pod) => pod.startsWith(name)));
    await until(`${names.join(", ")}: ready`, () => names.every(isThere), {
      // Ten programs of one variant start beside those of seven others.
      deadlineMs: 240_000,
      seen: () => this.said(),
    });
  }

  /** Asserts that each probe for life succeeds, and that nothing was refused or is a bug. */
  async assertWell(): Promise<void> {
    for (const node of this.#nodes.values()) assert.equal(await node.alive(), true);
    assert.doesNotMatch(this.said(), /forbidden|because of a bug/i);
  }

  /** Runs a pod on the node, with an interface of the installed network. */
  async run(name: string, annotations: Readonly<Record<string, string>> = {}): Promise<PlacedPod> {
    await this.api.create(resources.pods, {
      metadata: { namespace: "default", name, annotations },
      spec: { nodeName: "node", containers: [{ name: "c", image: "none", command: ["sleep", "300"] }] },
    } as unknown as Draft<Pod>);
    await this.ready(name);
    return this.node().find(name) ?? assert.fail(name);
  }

  /** Creates an object as soon as its webhooks answer. */
  async create(what: string, make: () => Promise<unknown>): Promise<void> {
    await until(
      `${what} is accepted`,
      async () => {
        try {
          await make();
          return true;
        } catch (error) {
          if (isKubeError(error, "server") || isKubeError(error, "not-found")) return false;
          throw error;
        }
      },
      { seen: () => this.said() },
    );
  }

  /** The pool `default`. */
  async makePool(): Promise<void> {
    await this.create("the pool", () => {
      const subnets = [{ ipv4: "10.210.0.0/26", ipv6: "fd00:210::/122" }];
      const pool = { metadata: { name: "default" }, spec: { blockSizeBits: 2, subnets } };
      return this.api.create(coilResources.addressPools, pool as Draft<AddressPool>);
    });
  }

  /** A Service of one endpoint, with its slice. */
  async makeService(
    name: string,
    front: { readonly clusterIP: string; readonly port: number },
    end: { readonly address: string; readonly port: number },
  ): Promise<void> {
    const namespace = "default";
    const port = { name: "main", protocol: "TCP" as const };
    await this.api.create(resources.services, {
      metadata: { namespace, name },
      spec: { clusterIP: front.clusterIP, ports: [{ ...port, port: front.port, targetPort: end.port }] },
    } as never);
    await this.api.create(resources.endpointSlices, {
      metadata: { namespace, name, labels: { "kubernetes.io/service-name": name } },
      addressType: "IPv4",
      endpoints: [{ addresses: [end.address], conditions: { ready: true } }],
      ports: [{ ...port, port: end.port }],
    } as never);
  }

  /** Serves at a port of a namespace: each connection is told the address that it comes from. */
  async serve(netns: string, address: string, port: number): Promise<void> {
    using space = openKernel().openNetNs({ name: netns });
    const server = createServer((socket) => {
      socket.on("error", () => socket.destroy());
      socket.end(`${socket.remoteAddress}`);
    });
    server.listen({ fd: listenTcp(IpAddress.parse(address), port, { netns: space }) });
    await once(server, "listening");
    this.#closers.push(() => server.close());
  }

  /** Waits until a frontend as kube-apiserver is one reaches a destination through a tunnel's server, by its socket. */
  async reachByFrontend(socket: string, destination: string): Promise<void> {
    // A socket's path has 107 bytes at most.
    const short = join(this.folder, "frontend");
    symlinkSync(dirname(socket), short);
    let answer = "";
    await until(
      `a frontend reaches ${destination}`,
      async () => {
        // A stream is of one connection.
        using frontend = openFrontend(`unix:${join(short, basename(socket))}`, credentials.createInsecure());
        answer = await frontend.dial(destination, 7);
        return answer === "";
      },
      { seen: () => `${answer}\n${this.said()}` },
    );
  }

  /** Returns the answer of a server of {@link serve} to a connection from a namespace; `none` if there is none within half a second. */
  async seen(netns: string, address: string, port: number): Promise<string> {
    try {
      const socket = await connectInside(
        { name: netns },
        { address: IpAddress.parse(address), port },
        { timeoutMs: 500 },
      );
      socket.on("error", () => socket.destroy());
      try {
        const [bytes] = (await once(socket, "data", { signal: AbortSignal.timeout(500) })) as [Buffer];
        return String(bytes);
      } finally {
        socket.destroy();
      }
    } catch {
      return "none";
    }
  }
}

/** The one image of this process. */
function image(): string {
  if (imageFolder === undefined) {
    const folder = mkdtempSync(join(tmpdir(), "isthmus-manifests-image-"));
    process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
    imageFolder = layImage(folder);
  }
  return imageFolder;
}
let imageFolder: string | undefined;

/** A bearer's token is the administrator's, or names namespace, account, node and audience, as kubelet's tokens have them. */
const authenticator: Authenticator = {
  authenticate({ authorization }) {
    const [, token = ""] = /^Bearer (.*)$/.exec(String(authorization)) ?? [];
    if (token === "admin") return { name: "admin", groups: ["system:masters"] };
    if (token.startsWith("user/")) return { name: token.slice("user/".length), groups: ["system:authenticated"] };
    const [namespace = "", account = "", node = "", audience = ""] = token.split("/");
    if (account === "" || audience !== "") return undefined;
    return {
      name: `system:serviceaccount:${namespace}:${account}`,
      groups: ["system:serviceaccounts", `system:serviceaccounts:${namespace}`, "system:authenticated"],
      ...(node !== "" && { extra: { [NODE_NAME]: [node] } }),
    };
  },
};

/** Tokens with an audience of their own. */
const reviewedTokens: ReadonlyMap<string, ReviewedToken> = new Map(
  (["node", "outside"] as const).map((machine) => [
    `kube-system/konnectivity-agent/${machine}/system:konnectivity-server`,
    {
      user: { name: "system:serviceaccount:kube-system:konnectivity-agent", groups: [] },
      audiences: ["system:konnectivity-server"],
    },
  ]),
);

/** The address of one family among some. */
export function ofFamily(ips: readonly string[], family: IpFamily): string {
  return ips.find((one) => one.includes(":") === (family === 6)) ?? assert.fail(ips.join());
}

/** The role of kube-proxy, which every cluster has. */
export const NODE_PROXIER = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: system:node-proxier
rules:
  - { apiGroups: [""], resources: [services, endpoints], verbs: [list, watch] }
  - { apiGroups: [""], resources: [nodes], verbs: [get, list, watch] }
  - { apiGroups: ["", events.k8s.io], resources: [events], verbs: [create, patch, update] }
  - { apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch] }
  - { apiGroups: [networking.k8s.io], resources: [servicecidrs], verbs: [list, watch] }
`;
