/**
 * The world of `scale`: an API server with a large cluster in it, and one node of that cluster as a network namespace, in which the
 * programs that ship run. All of it is removed when the world is disposed.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "#base/clock";
import { openKernel } from "#kernel/net";
import { KubeClient, loadKubeConfig, resources } from "#kube/client";
import { coilCrds } from "#kube/coil";
import {
  end,
  makeNode,
  NODE_ADDRESSES,
  netnsName,
  pidOf,
  removeNamespaces,
  removeStale,
  startProgram,
} from "./cni-add.world.ts";
import { type Answer, type Counts, type Order, USERS, type User } from "./scale.api-server.ts";
import { type Sizes, UPLINK } from "./scale.objects.ts";
import type { Quantiles } from "./service-sync.measure.ts";

/** The programs that are measured. */
export type Program = Exclude<User, "bench">;

/** A program that runs. */
export interface Running {
  readonly child: ChildProcess;
  readonly pid: number;
  /** When it was started, milliseconds of `performance.now`. */
  readonly startedMs: number;
}

/** The running parts of a measurement. */
export interface ScaleWorld extends AsyncDisposable {
  /** Client of the API server, as the user `bench`. */
  readonly api: KubeClient;
  /** coild's socket. */
  readonly socket: string;
  /** The namespace of our node. */
  readonly node: string;
  /** The namespaces of its pods. */
  readonly pods: readonly string[];
  readonly apiServerMiB: number;
  /** Starts a program in {@link ScaleWorld.node}; it ends with the world. */
  readonly start: (program: Program, ...flags: readonly string[]) => Running;
  /** The log of a program, all its runs. */
  readonly log: (program: Program) => string;
  /** Requests that the API server has had, and how long its one thread was busy at a time since the last call, in milliseconds. */
  readonly counts: () => Promise<{ readonly counts: Counts; readonly stallMs: Quantiles }>;
}

/** Builds all of it. Rejects when a part does not start. */
export async function openScaleWorld(
  sizes: Sizes,
  { pods, signal }: { readonly pods: number; readonly signal: AbortSignal },
): Promise<ScaleWorld> {
  await using undo = new AsyncDisposableStack();
  removeStale();
  const dir = mkdtempSync(join(tmpdir(), "isthmus-bench-scale-"));
  undo.defer(() => rmSync(dir, { recursive: true, force: true }));
  const node = netnsName("ours");
  const podNames = Array.from({ length: pods }, (_, at) => netnsName(`pod${at}`));
  undo.defer(() => removeNamespaces(netnsName("")));
  makeNode(node, NODE_ADDRESSES);
  addUplink(node, sizes);
  for (const name of podNames) makeNode(name, []);

  const server = fork(join(import.meta.dirname, "scale.api-server.ts"), [node], {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
    // The server is not measured, but a garbage collection of its large heap would disturb the measurement.
    execArgv: ["--max-old-space-size=8192", "--initial-old-space-size=4096", "--max-semi-space-size=64"],
    detached: true,
  });
  undo.defer(() => end(server));
  const [hello] = (await once(server, "message", { signal })) as [Extract<Answer, { kubeconfigs: unknown }>];
  const order = async <A extends Answer>(what: Order): Promise<A> => {
    server.send(what);
    return ((await once(server, "message", { signal })) as [A])[0];
  };
  const kubeconfig = (user: User): string => join(dir, `kubeconfig.${user}`);
  for (const user of USERS) writeFileSync(kubeconfig(user), hello.kubeconfigs[user], { mode: 0o600 });
  const api = new KubeClient(await loadKubeConfig({ path: kubeconfig("bench"), clock: systemClock }), {
    userAgent: "scale",
    clock: systemClock,
  });
  undo.defer(() => api[Symbol.asyncDispose]());
  for (const crd of coilCrds) {
    const patch = { type: "apply", body: crd, fieldManager: "scale" } as const;
    await api.patch(resources.customResourceDefinitions, { name: crd.metadata.name }, patch, { signal });
  }
  const { rssMiB } = await order<Extract<Answer, { seeded: number }>>({ do: "seed", sizes });

  const started = new Set<ChildProcess>();
  undo.defer(async () => {
    for (const child of started) await end(child);
  });
  const parts = undo.move();
  return {
    api,
    socket: join(dir, "coild.sock"),
    node,
    pods: podNames,
    apiServerMiB: rssMiB,
    start: (program, ...flags) => {
      const startedMs = performance.now();
      const child = startProgram(node, dir, program, [`--kubeconfig=${kubeconfig(program)}`, ...flags]);
      started.add(child);
      return { child, pid: pidOf(child), startedMs };
    },
    log: (program) => readFileSync(join(dir, `${program}.log`), "utf8"),
    counts: () => order<Extract<Answer, { counts: Counts }>>({ do: "counts" }),
    [Symbol.asyncDispose]: () => parts.disposeAsync(),
  };
}

/** The link on which all nodes are neighbours: routes to their blocks need a gateway that is on a link. */
function addUplink(name: string, { nodes }: Sizes): void {
  const kernel = openKernel();
  using netns = kernel.openNetNs({ name });
  using stack = kernel.openStack(netns);
  const { index } = stack.links.create({ kind: "bridge", name: "uplink", up: true });
  for (const cidr of [UPLINK.ipv4, UPLINK.ipv6]) {
    const address = cidr.subnet(cidr.base.bits, nodes + 1).base;
    stack.addresses.replace({ linkIndex: index, address, prefixLength: cidr.prefixLength, noDad: true });
  }
}
