/**
 * The surroundings of `cni-add`: a node with our coild, its API server and its block controller; a second namespace that
 * stands for the peer's node; pods for both. All of it is removed when the world is disposed.
 */
import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sleep } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { openKernel } from "#kernel/net";
import { deleteNetNs, inNetNs, listNetNs, openNetNs } from "#kernel/netns";
import { KubeClient, loadKubeConfig, resources } from "#kube/client";
import { coilCrds, coilResources, POOL_ANNOTATION } from "#kube/coil";
import type { ApiServerMessage } from "./cni-add.api-server.ts";

const root = join(import.meta.dirname, "..");
const PREFIX = "isthmus-bench-cni-";
/** The name of the only node. */
export const NODE = "bench-node";
/** Its addresses. */
export const NODE_ADDRESSES = ["192.0.2.1", "2001:db8::1"].map((text) => IpAddress.parse(text));
const START_TIMEOUT_MS = 30_000;

/** Each has one namespace of Kubernetes, and one pool. */
export const NAMESPACES = { ipv4: "default", dual: "dual" } as const;
export type Families = keyof typeof NAMESPACES;

/** The running parts of a measurement. */
export interface World extends AsyncDisposable {
  readonly dir: string;
  /** Names of the namespaces in which the plugins run. */
  readonly ourNode: string;
  readonly peerNode: string;
  /** Namespaces of pods, the requested number, one set for each side. */
  readonly ourPods: readonly string[];
  readonly peerPods: readonly string[];
  readonly socket: string;
  /** coild's log, JSON lines. */
  readonly coildLog: string;
  /** Client of the API server. */
  readonly api: KubeClient;
  /** Starts a program of this project in {@link World.ourNode}, with the API server's credentials; it ends with the world. */
  readonly start: (program: string, ...flags: readonly string[]) => ChildProcess;
  /** The credentials, for command lines that name them otherwise. */
  readonly kubeconfig: string;
  readonly pids: { readonly coild: number; readonly apiServer: number; readonly controller: number };
}

/** Builds the world; `pods` pods `pod-0`… exist in each Kubernetes namespace. Rejects when a part does not start. */
export async function openWorld(
  pods: number,
  { signal, coildFlags = [] }: { readonly signal: AbortSignal; readonly coildFlags?: readonly string[] },
): Promise<World> {
  await using undo = new AsyncDisposableStack();
  removeStale();
  const dir = mkdtempSync(join(tmpdir(), "isthmus-bench-cni-"));
  undo.defer(() => rmSync(dir, { recursive: true, force: true }));
  const name = netnsName;
  const names = (side: string): string[] => Array.from({ length: pods }, (_, at) => name(`${side}-pod${at}`));
  const [ourNode, peerNode, ourPods, peerPods] = [name("ours"), name("peer"), names("ours"), names("peer")];
  undo.defer(() => removeNamespaces(name("")));
  makeNode(ourNode, NODE_ADDRESSES);
  makeNode(peerNode, NODE_ADDRESSES);
  for (const pod of [...ourPods, ...peerPods]) makeNode(pod, []);

  const server = fork(join(import.meta.dirname, "cni-add.api-server.ts"), [ourNode], {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
    execArgv: [],
    detached: true,
  });
  undo.defer(() => end(server));
  const [configs] = (await once(server, "message", { signal })) as [ApiServerMessage];
  const kubeconfig = { here: join(dir, "kubeconfig"), inNode: join(dir, "kubeconfig.node") };
  for (const at of ["here", "inNode"] as const) writeFileSync(kubeconfig[at], configs[at], { mode: 0o600 });
  const api = new KubeClient(await loadKubeConfig({ path: kubeconfig.here, clock: systemClock }), {
    userAgent: "cni-add",
    clock: systemClock,
  });
  undo.defer(() => api[Symbol.asyncDispose]());
  await prepare(api, pods, signal);

  const started = new Set<ChildProcess>();
  undo.defer(async () => {
    for (const child of started) await end(child);
  });
  const start = (program: string, ...flags: readonly string[]): ChildProcess => {
    const credentials = program === "node" ? [] : [`--kubeconfig=${kubeconfig.inNode}`];
    const child = startProgram(ourNode, dir, program, [...credentials, ...flags]);
    started.add(child);
    return child;
  };
  const controller = start("coil-ipam-controller", "--webhook-addr=none");
  const socket = join(dir, "coild.sock");
  const coild = start("coild", `--socket=${socket}`, ...coildFlags);
  const deadline = AbortSignal.any([signal, AbortSignal.timeout(START_TIMEOUT_MS)]);
  while (!existsSync(socket)) {
    if (coild.exitCode !== null) throw new Error(`coild has ended: ${readFileSync(join(dir, "coild.log"), "utf8")}`);
    await sleep(20, { signal: deadline });
  }
  const parts = undo.move();
  return {
    dir,
    ourNode,
    peerNode,
    ourPods,
    peerPods,
    socket,
    coildLog: join(dir, "coild.log"),
    api,
    start,
    kubeconfig: kubeconfig.inNode,
    pids: { coild: pidOf(coild), apiServer: pidOf(server), controller: pidOf(controller) },
    [Symbol.asyncDispose]: () => parts.disposeAsync(),
  };
}

/** The name of a namespace of this benchmark; if this benchmark is killed, the next run removes it. */
export const netnsName = (suffix: string): string => `${PREFIX}${process.pid}-${suffix}`;

/** Makes a namespace whose loopback is up and has these addresses. */
export function makeNode(name: string, addresses: readonly IpAddress[]): void {
  const kernel = openKernel();
  using netns = kernel.createNetNs(name);
  using stack = kernel.openStack(netns);
  const loopback = stack.links.get({ name: "lo" });
  if (loopback === undefined) throw new Error(`${name} has no loopback`);
  stack.links.set(loopback.index, { up: true });
  for (const address of addresses) {
    stack.addresses.replace({ linkIndex: loopback.index, address, prefixLength: address.bits, noDad: true });
  }
}

/** Starts a program of this project in a namespace; its log is `dir/<program>.log`. */
export function startProgram(
  namespace: string,
  dir: string,
  program: string,
  flags: readonly string[],
  more: Readonly<Record<string, string>> = {},
): ChildProcess {
  using netns = openNetNs({ name: namespace });
  const log = openSync(join(dir, `${program}.log`), "a", 0o600);
  const env = { PATH: process.env["PATH"] ?? "", COIL_NODE_NAME: NODE, COIL_POD_NAME: program, ...more };
  // A child made while this thread is in the namespace stays in it.
  return inNetNs(netns, () =>
    spawn(join(root, "dist/isthmus"), [program, ...flags], { env, stdio: ["ignore", log, log], detached: true }),
  );
}

/** API types, the node, a large pool for each set of families, and the pods. */
async function prepare(api: KubeClient, pods: number, signal: AbortSignal): Promise<void> {
  const put = async (type: Parameters<KubeClient["patch"]>[0], body: Body): Promise<void> => {
    const { name, namespace } = body.metadata;
    await api.patch(type, { name, namespace }, { type: "apply", body, fieldManager: "cni-add" }, { signal });
  };
  for (const crd of coilCrds) await put(resources.customResourceDefinitions, { ...crd } as unknown as Body);
  await put(resources.nodes, { apiVersion: "v1", kind: "Node", metadata: { name: NODE } });
  const addresses = NODE_ADDRESSES.map((address) => ({ type: "InternalIP", address: address.toString() }));
  const status = { type: "merge", body: { status: { addresses } } } as const;
  await api.patch(resources.nodes, { name: NODE }, status, { subresource: "status", signal });
  const subnets = {
    ipv4: [{ ipv4: "10.100.0.0/16" }],
    dual: [{ ipv4: "10.101.0.0/16", ipv6: "fd10:101::/112" }],
  };
  for (const families of ["ipv4", "dual"] as const) {
    const pool = NAMESPACES[families];
    await put(resources.namespaces, {
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name: pool, annotations: { [POOL_ANNOTATION]: pool } },
    });
    await put(coilResources.addressPools, {
      apiVersion: "coil.cybozu.com/v2",
      kind: "AddressPool",
      metadata: { name: pool },
      spec: { blockSizeBits: 10, subnets: subnets[families] },
    });
    for (let at = 0; at < pods; at += 1) {
      await put(resources.pods, {
        apiVersion: "v1",
        kind: "Pod",
        metadata: { name: `pod-${at}`, namespace: pool },
        spec: { nodeName: NODE, containers: [{ name: "main", image: "none" }] },
      });
    }
  }
}

interface Body {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly annotations?: object };
  readonly [field: string]: unknown;
}

/** Median time of reading a pod, as each ADD does, by the same client, in milliseconds. */
export async function timeApi(world: World, count: number, signal: AbortSignal): Promise<number[]> {
  const times: number[] = [];
  for (let at = 0; at < count; at += 1) {
    const start = performance.now();
    await world.api.get(resources.pods, { namespace: NAMESPACES.ipv4, name: "pod-0" }, { signal });
    times.push(performance.now() - start);
  }
  return times;
}

/** CPU time that a process has used, in milliseconds; a clock tick is 10 ms (proc_pid_stat(5), fields 14 and 15). */
export function cpuOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** Ends a program that {@link World.start} began. */
export async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const ended = once(child, "exit");
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), 5000);
  await ended;
  clearTimeout(timer);
}

/** The id of a process that has started. */
export function pidOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error(`cannot start ${child.spawnfile}`);
  return child.pid;
}

/** Removes the namespaces of that prefix. */
export function removeNamespaces(prefix: string): void {
  for (const name of listNetNs()) if (name.startsWith(prefix)) deleteNetNs(name);
}

/** The remains of a killed benchmark: namespaces whose name has the id of a process that does not exist any more. */
export function removeStale(): void {
  const pids = new Set(listNetNs().flatMap((name) => new RegExp(`^${PREFIX}(\\d+)-`).exec(name)?.[1] ?? []));
  for (const pid of pids) if (!existsSync(`/proc/${pid}`)) removeNamespaces(`${PREFIX}${pid}-`);
}
