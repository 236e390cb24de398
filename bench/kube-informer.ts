/**
 * 50,000 pods of 5 KB from the embedded API server in another process: time until synced, time until 5,000 new pods were
 * seen on the watch, peak memory of the client's process and its longest event-loop block; for our informer (paged list,
 * pruned before the store) and for a peer that lists everything in one answer, parses it at once and keeps whole objects,
 * as the JavaScript client does.
 *
 *     node bench/kube-informer.ts [--json] [--pods N] [--rounds N]
 *
 * Each round runs each side once, in a separate process, in turns; the figures are medians.
 */
import { type ChildProcess, fork } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay, performance } from "node:perf_hooks";
import { parseArgs } from "node:util";
import { Agent, request } from "undici";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { KubeClient, loadKubeConfig, type Pod, resources } from "#kube/client";
import { createInformer } from "#kube/informer";

const PEER = "single-list informer";
const POD_BYTES = 5_000;
const LOOP_RESOLUTION_MS = 5;

/** Pods that are created when the client is synced, as a fraction of the existing pods: one in this number. */
const NEW_SHARE = 10;

interface Sample {
  readonly seconds: number;
  readonly watchSeconds: number;
  readonly peakMiB: number;
  readonly blockMs: number;
}
type Side = "ours" | "peer";

/** A pod like those of busy clusters: half of it is managedFields, environment and conditions. */
function pod(index: number): { apiVersion: string; kind: string; metadata: { name: string; namespace: string } } {
  const made = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: `app-${index}`,
      namespace: "default",
      labels: { app: `app-${index % 500}`, "pod-template-hash": "5d59d67564" },
      annotations: { "checksum/config": "0".repeat(64) },
      managedFields: [
        {
          manager: "kubelet",
          operation: "Update",
          apiVersion: "v1",
          fieldsType: "FieldsV1",
          fieldsV1: { "f:status": Object.fromEntries(Array.from({ length: 40 }, (_, n) => [`f:field${n}`, {}])) },
        },
      ],
    },
    spec: {
      nodeName: `node-${index % 250}`,
      containers: [{ name: "main", image: "registry.example/app:1.2.3", env: [] as { name: string; value: string }[] }],
    },
    status: {
      phase: "Running",
      podIP: `10.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}`,
      podIPs: [{ ip: `10.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}` }],
      conditions: ["Initialized", "Ready", "ContainersReady", "PodScheduled"].map((type) => ({
        type,
        status: "True",
        lastTransitionTime: "2026-01-01T00:00:00Z",
      })),
    },
  };
  const env = made.spec.containers[0]?.env ?? [];
  for (let size = JSON.stringify(made).length; size < POD_BYTES; size += 105) {
    env.push({ name: `VARIABLE_${String(env.length).padStart(3, "0")}`, value: "v".repeat(70) });
  }
  return made;
}

async function serve(pods: number): Promise<void> {
  // Imported only here, so that the measured processes do not load the server's code.
  const { startApiServer } = await import("#lab/api-server");
  const server = await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, log: nullLogger, clock: systemClock });
  server.seed(Array.from({ length: pods }, (_, index) => pod(index)));
  process.send?.(server.kubeconfig());
  process.on("message", (order) => void changePods(server.urls[0] ?? "", order === "create", pods));
  // Serves until the parent ends it.
  process.once("disconnect", () => process.exit(0));
}

/** Makes the new pods, or removes them, several at a time, through the API; sends a message when it is done. */
async function changePods(server: string, create: boolean, pods: number): Promise<void> {
  const dispatcher = new Agent({ connections: 8 });
  let next = pods;
  const work = async (): Promise<void> => {
    for (let index = next; index < pods + pods / NEW_SHARE; index = next) {
      next += 1;
      const path = `/api/v1/namespaces/default/pods${create ? "" : `/app-${index}?gracePeriodSeconds=0`}`;
      const { metadata, ...rest } = pod(index) as ReturnType<typeof pod> & { metadata: { managedFields?: unknown } };
      const { managedFields: _refused, ...kept } = metadata;
      const answer = await request(new URL(path, server), {
        method: create ? "POST" : "DELETE",
        headers: { "content-type": "application/json" },
        body: create ? JSON.stringify({ ...rest, metadata: kept }) : null,
        dispatcher,
      });
      const text = await answer.body.text();
      if (answer.statusCode >= 300)
        throw new Error(`a change was answered with ${answer.statusCode}: ${text.slice(0, 200)}`);
    }
  };
  await Promise.all(Array.from({ length: 8 }, work));
  await dispatcher.close();
  process.send?.("changed");
}

/** A synced client: the number of its objects, and a promise that resolves after this number of further objects. */
interface InStep {
  readonly count: number;
  readonly more: Promise<void>;
}

async function measure(work: (stop: AbortSignal, more: number) => Promise<InStep>, pods: number): Promise<void> {
  const loop = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS });
  loop.enable();
  const stop = new AbortController();
  const startedAt = performance.now();
  const { count, more } = await work(stop.signal, Math.ceil(pods / NEW_SHARE));
  const seconds = (performance.now() - startedAt) / 1000;
  const syncedAt = performance.now();
  process.send?.("synced");
  await more;
  const watchSeconds = (performance.now() - syncedAt) / 1000;
  // One more round of the event loop, so that a block at the end is measured.
  await new Promise((resolve) => setTimeout(resolve, 2 * LOOP_RESOLUTION_MS));
  loop.disable();
  if (count !== pods) throw new Error(`saw ${count} pods, not ${pods}`);
  const sample: Sample = {
    seconds,
    watchSeconds,
    peakMiB: await peakMiB(),
    blockMs: Math.max(0, loop.max / 1e6 - LOOP_RESOLUTION_MS),
  };
  process.send?.(sample, () => process.exit(0));
}

/** The peak of this process alone; `maxRSS` of getrusage starts from that of the parent. */
async function peakMiB(): Promise<number> {
  const status = await readFile("/proc/self/status", "utf8");
  return Number(/^VmHWM:\s*(\d+) kB$/m.exec(status)?.[1]) / 1024;
}

/** The fields of a pod that a network controller needs. */
function prune({ metadata, spec, status }: Pod): PrunedPod {
  const { name, namespace, uid, resourceVersion } = metadata;
  return { metadata: { name, namespace, uid, resourceVersion }, nodeName: spec?.nodeName, ip: status?.podIP };
}
interface PrunedPod {
  readonly metadata: Pick<Pod["metadata"], "name" | "uid" | "resourceVersion"> & {
    readonly namespace: string | undefined;
  };
  readonly nodeName: string | undefined;
  readonly ip: string | undefined;
}

async function ours(path: string, stop: AbortSignal, more: number): Promise<InStep> {
  const client = new KubeClient(await loadKubeConfig({ path, clock: systemClock }), { clock: systemClock });
  const informer = createInformer(client, resources.pods, {
    transform: prune,
    indexers: { node: (one) => (one.nodeName === undefined ? [] : [one.nodeName]) },
    clock: systemClock,
  });
  let told = 0;
  let late = 0;
  const seen = Promise.withResolvers<void>();
  informer.addHandler({
    onAdd: (_pod, { initial }) => {
      if (initial) told += 1;
      else late += 1;
      if (late === more) seen.resolve();
    },
  });
  const running = informer.run({ signal: stop });
  await Promise.race([informer.synced, running]);
  return { count: Math.min(told, informer.store.size), more: seen.promise };
}

async function peer(path: string, more: number): Promise<InStep> {
  const connection = await loadKubeConfig({ path, clock: systemClock });
  const { headers, ca, cert, key } = await connection.credentials();
  const tls = {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
  };
  const dispatcher = new Agent({ connect: tls });
  const answer = await request(new URL("/api/v1/pods", connection.server), { headers, dispatcher });
  const list = JSON.parse(await answer.body.text()) as { metadata: { resourceVersion: string }; items: Pod[] };
  const store = new Map<string, Pod>();
  let told = 0;
  for (const item of list.items) {
    store.set(`${item.metadata.namespace}/${item.metadata.name}`, item);
    told += 1;
  }
  const from = `/api/v1/pods?watch=true&resourceVersion=${list.metadata.resourceVersion}`;
  const watch = await request(new URL(from, connection.server), { headers, dispatcher, bodyTimeout: 0 });
  const follow = async (): Promise<void> => {
    let rest = "";
    let late = 0;
    for await (const chunk of watch.body.setEncoding("utf8")) {
      const lines = (rest + String(chunk)).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        const { object } = JSON.parse(line) as { object: Pod };
        store.set(`${object.metadata.namespace}/${object.metadata.name}`, object);
        late += 1;
        if (late === more) return;
      }
    }
    throw new Error("the watch ended early");
  };
  return { count: Math.min(told, store.size), more: follow() };
}

/** Starts this file in another role and resolves to the first message it sends. */
async function child<T>(
  role: string,
  ...args: string[]
): Promise<{ readonly message: T; readonly process: ChildProcess }> {
  const started = fork(import.meta.filename, [`--role=${role}`, ...args], {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  return { message: await nextMessage<T>(started, role), process: started };
}

function nextMessage<T>(from: ChildProcess, role: string): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const onExit = (code: number | null): void => reject(new Error(`the ${role} process ended with code ${code}`));
    from.once("exit", onExit);
    from.once("message", (value) => {
      from.off("exit", onExit);
      resolve(value as T);
    });
  });
}

/** Makes the server's process change pods, and waits until it has done so. */
async function order(server: ChildProcess, what: "create" | "remove"): Promise<void> {
  const done = nextMessage(server, "server");
  server.send(what);
  await done;
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

async function compare(pods: number, rounds: number): Promise<Record<Side, Sample[]>> {
  const folder = await mkdtemp(join(tmpdir(), "isthmus-bench-"));
  const server = await child<string>("server", `--pods=${pods}`);
  try {
    const path = join(folder, "kubeconfig");
    await writeFile(path, server.message, { mode: 0o600 });
    const samples: Record<Side, Sample[]> = { ours: [], peer: [] };
    for (let round = 0; round < rounds; round += 1) {
      // The order of the sides alternates, so that neither side always runs after the other.
      for (const side of round % 2 === 0 ? (["ours", "peer"] as const) : (["peer", "ours"] as const)) {
        const client = await child<string>(side, `--pods=${pods}`, `--kubeconfig=${path}`);
        const sample = nextMessage<Sample>(client.process, side);
        await order(server.process, "create");
        samples[side].push(await sample);
        await order(server.process, "remove");
      }
    }
    return samples;
  } finally {
    server.process.disconnect();
    await rm(folder, { recursive: true });
  }
}

function report(samples: Record<Side, Sample[]>, pods: number): object {
  const figures = [
    { name: "time to synced", unit: "s", of: (sample: Sample) => sample.seconds },
    { name: "time to new pods seen by watch", unit: "s", of: (sample: Sample) => sample.watchSeconds },
    { name: "peak memory", unit: "MiB", of: (sample: Sample) => sample.peakMiB },
    { name: "longest event-loop block", unit: "ms", of: (sample: Sample) => sample.blockMs },
  ];
  const cases = figures.map(({ name, unit, of }) => {
    const [mine, theirs] = [median(samples.ours.map(of)), median(samples.peer.map(of))];
    return {
      case: `${name}, ${pods} pods`,
      ours: round(mine),
      peer: round(theirs),
      peerName: PEER,
      unit,
      ratio: round(mine / theirs),
    };
  });
  return { name: "kube-informer", betterIs: "lower", cases };
}

function round(value: number): number {
  return Number(value.toPrecision(4));
}

function print(result: ReturnType<typeof report>): void {
  const { cases } = result as { cases: { case: string; ours: number; peer: number; unit: string; ratio: number }[] };
  console.log(`${"lower is better".padEnd(44)}${"ours".padStart(12)}${"peer".padStart(12)}${"ratio".padStart(10)}`);
  for (const { case: name, ours: mine, peer: theirs, unit, ratio } of cases) {
    console.log(
      `${`${name} (${unit})`.padEnd(44)}${String(mine).padStart(12)}${String(theirs).padStart(12)}${String(ratio).padStart(10)}`,
    );
  }
  console.log(`ratio ${cases[0]?.ratio} ${PEER}`);
}

const { values } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    pods: { type: "string", default: "50000" },
    rounds: { type: "string", default: "3" },
    role: { type: "string", default: "compare" },
    kubeconfig: { type: "string", default: "" },
  },
});
const pods = Number(values.pods);
const rounds = Number(values.rounds);
if (!Number.isInteger(pods) || pods < 1 || !Number.isInteger(rounds) || rounds < 1) {
  console.error(
    "usage: node bench/kube-informer.ts [--json] [--pods N] [--rounds N], with whole numbers of at least 1",
  );
  process.exitCode = 2;
} else if (values.role === "server") await serve(pods);
else if (values.role === "ours") await measure((stop, more) => ours(values.kubeconfig, stop, more), pods);
else if (values.role === "peer") await measure((_stop, more) => peer(values.kubeconfig, more), pods);
else {
  const result = report(await compare(pods, rounds), pods);
  if (values.json) console.log(JSON.stringify(result));
  else print(result);
}
