/**
 * The memory of the daemons of a node: each alone and several in one process (`isthmus node`), beside a bare Node with koffi, with
 * 250 pods, 1,000 Services and 100 nodes; the memory after a churn of pods; and a controller with 20,000 blocks. Sizes are PSS and
 * private memory of /proc/PID/smaps_rollup after some seconds of rest, in MiB, for the churn after a minute. The last case is a service
 * proxy with 10,000 Services.
 *
 *     ./run bench footprint [--json] [--churn=N] [--blocks=N] [--services=N]
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Semaphore, sleep } from "#base/async";
import { callGrpc } from "#features/cni";
import { type KubeObject, type ResourceType, resources } from "#kube/client";
import { COIL_FINALIZER, coilResources, NODE_LABEL, POOL_LABEL } from "#kube/coil";
import { CNI_SERVICE, EMPTY_CNI_ARGS, encodeCniArgs } from "#wire/cnirpc";
import { end, openWorld, type World } from "./cni-add.world.ts";

const PODS = 250;
const SERVICES = 1000;
const NODES = 100;
const NODE = "bench-node";
const REST_MS = 8000;
/** Within this time a program returns memory that it needs no more, in milliseconds (src/programs/start/release-memory.ts). */
const RELEASE_MS = 65_000;
const root = join(import.meta.dirname, "..");
const { values } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    churn: { type: "string", default: "10000" },
    blocks: { type: "string", default: "20000" },
    services: { type: "string", default: "10000" },
  },
});
const signal = AbortSignal.timeout(1_800_000);

interface Sizes {
  readonly rssMiB: number;
  readonly pssMiB: number;
  readonly privateMiB: number;
}
interface Row extends Sizes {
  readonly what: string;
  /** The limit, and the size that it applies to. */
  readonly budget?: { readonly size: keyof Sizes; readonly mib: number };
}

/** `smaps_rollup` of proc_pid_smaps(5). */
function sizesOf(pid: number): Sizes {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  const mib = (key: string): number => Number(new RegExp(`^${key}:\\s+(\\d+) kB`, "m").exec(text)?.[1] ?? 0) / 1024;
  const privateMiB = mib("Private_Clean") + mib("Private_Dirty");
  return { rssMiB: mib("Rss"), pssMiB: mib("Pss"), privateMiB };
}

async function rested(child: ChildProcess): Promise<Sizes> {
  await sleep(REST_MS, { signal });
  if (child.exitCode !== null || child.pid === undefined) throw new Error(`${child.spawnargs.join(" ")} has ended`);
  return sizesOf(child.pid);
}

async function bareNode(): Promise<Sizes> {
  const script = `import ${JSON.stringify(join(root, "node_modules/koffi/index.js"))}; setInterval(() => undefined, 1000);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: "ignore" });
  try {
    return await rested(child);
  } finally {
    child.kill("SIGKILL");
    await once(child, "exit");
  }
}

/** Makes many objects, 16 at a time. */
async function makeAll<T extends KubeObject>(
  world: World,
  type: ResourceType<T>,
  count: number,
  draft: (at: number) => object,
): Promise<void> {
  const slots = new Semaphore(16);
  const making = Array.from({ length: count }, (_, at) =>
    slots.run(() => world.api.create(type, draft(at) as never, { signal }), { signal }),
  );
  await Promise.all(making);
}

/** Services, each with a slice of this number of endpoints. */
async function makeServices(
  world: World,
  { from, count, endpoints }: { readonly from: number; readonly count: number; readonly endpoints: number },
): Promise<void> {
  const ip = (at: number): string => `10.${96 + (at >> 16)}.${(at >> 8) & 255}.${at & 255}`;
  const ports = [{ name: "http", port: 80, protocol: "TCP", targetPort: 8080 }];
  await makeAll(world, resources.services, count, (at) => ({
    metadata: { name: `svc-${from + at}`, namespace: "default" },
    spec: {
      clusterIP: ip(from + at + 1),
      clusterIPs: [ip(from + at + 1)],
      ports,
      selector: { app: `app-${from + at}` },
    },
  }));
  await makeAll(world, resources.endpointSlices, count, (at) => ({
    metadata: {
      name: `svc-${from + at}-a`,
      namespace: "default",
      labels: { "kubernetes.io/service-name": `svc-${from + at}` },
    },
    addressType: "IPv4",
    ports: [{ name: "http", port: 8080, protocol: "TCP" }],
    endpoints: Array.from({ length: endpoints }, (_, one) => ({
      addresses: [`10.${200 + ((from + at) >> 12)}.${((from + at) >> 4) & 255}.${(((from + at) & 15) << 4) + one}`],
      conditions: { ready: true },
      nodeName: NODE,
    })),
  }));
}

/** Services with two endpoints each, and the other nodes with a block each. */
async function populate(world: World): Promise<void> {
  await makeServices(world, { from: 0, count: SERVICES, endpoints: 2 });
  await makeAll(world, resources.nodes, NODES, (at) => ({ metadata: { name: `other-${at}` } }));
  await makeBlocks(world, NODES, "other");
}

function makeBlocks(world: World, count: number, prefix: string): Promise<void> {
  return makeAll(world, coilResources.addressBlocks, count, (at) => ({
    metadata: {
      name: `${prefix}-${at}`,
      labels: { [POOL_LABEL]: prefix, [NODE_LABEL]: `other-${at % NODES}` },
      finalizers: [COIL_FINALIZER],
    },
    index: at,
    ipv4: `10.${150 + (at >> 14)}.${(at >> 6) & 255}.${(at & 63) << 2}/30`,
  }));
}

async function cni(world: World, method: "Add" | "Del", pod: number): Promise<void> {
  const args = { K8S_POD_NAMESPACE: "default", K8S_POD_NAME: `pod-${pod}` };
  const request = encodeCniArgs({
    ...EMPTY_CNI_ARGS,
    containerId: `footprint-${pod}`,
    netns: `/run/netns/${world.ourPods[pod]}`,
    ifname: "eth0",
    args,
  });
  await callGrpc(world.socket, `/${CNI_SERVICE}/${method}`, request, { signal, timeoutMs: 60_000 });
}

async function forAllPods(world: World, method: "Add" | "Del", pods: readonly number[]): Promise<void> {
  const slots = new Semaphore(8);
  await Promise.all(pods.map((pod) => slots.run(() => cni(world, method, pod), { signal })));
}

/** Deletes pods and creates them again, `count` times in total. */
async function churn(world: World, count: number): Promise<void> {
  const pods = Array.from({ length: PODS }, (_, at) => at);
  for (let done = 0; done < count; done += PODS) {
    const some = pods.slice(0, Math.min(PODS, count - done));
    await forAllPods(world, "Del", some);
    await forAllPods(world, "Add", some);
    if (!values.json) process.stderr.write(`\rchurn: ${done + some.length} of ${count}`);
  }
  if (!values.json) process.stderr.write("\n");
}

const say = (text: string): void => void (values.json || process.stderr.write(`${text}\n`));
const NAMES = { rssMiB: "RSS", pssMiB: "PSS", privateMiB: "private" } as const;
const ALONE = { size: "privateMiB", mib: 45 } as const;
const rows: Row[] = [];
rows.push({ what: "bare Node with koffi", ...(await bareNode()) });
{
  await using world = await openWorld(PODS, { signal });
  say("making objects");
  await populate(world);
  await forAllPods(
    world,
    "Add",
    Array.from({ length: PODS }, (_, at) => at),
  );
  const { coild: coildPid, controller } = world.pids;
  await sleep(REST_MS, { signal });
  rows.push({ what: `coild, ${PODS} pods`, ...sizesOf(coildPid), budget: ALONE });
  rows.push({ what: "coil-ipam-controller", ...sizesOf(controller), budget: ALONE });
  say("resting");
  await sleep(RELEASE_MS, { signal });
  const before = sizesOf(coildPid);
  await churn(world, Number(values.churn));
  await sleep(RELEASE_MS, { signal });
  const after = sizesOf(coildPid);
  rows.push({
    what: `coild, what ${values.churn} ADDs and DELs added`,
    rssMiB: after.rssMiB - before.rssMiB,
    pssMiB: after.pssMiB - before.pssMiB,
    privateMiB: after.privateMiB - before.privateMiB,
    budget: { size: "privateMiB", mib: 10 },
  });
  const serviceFlags = [`--hostname-override=${NODE}`, "--nodeport-addresses=192.0.2.1/32,2001:db8::1/128"];
  const agentFlags = ["--proxy-server-port=1"];
  for (const [program, flags] of [
    ["coil-router", []],
    ["service-proxy", serviceFlags],
  ] as const) {
    const child = world.start(program, ...flags);
    // Garbage collections return its heap some seconds after its first table.
    if (program === "service-proxy") await sleep(2 * REST_MS, { signal });
    rows.push({ what: program, ...(await rested(child)), budget: ALONE });
    await end(child);
  }
  say("four in one process");
  process.kill(coildPid, "SIGTERM");
  await sleep(3000, { signal });
  const credentials = `--kubeconfig=${world.kubeconfig}`;
  const words = [
    ["coild", credentials, `--socket=${world.socket}`],
    ["coil-router", credentials],
    ["service-proxy", credentials, ...serviceFlags],
    ["proxy-agent", ...agentFlags],
  ].flatMap((one, at) => (at === 0 ? one : ["--", ...one]));
  const together = world.start("node", ...words);
  rows.push({
    what: `isthmus node: coild, coil-router, service-proxy, proxy-agent; ${PODS} pods, ${SERVICES} Services`,
    ...(await rested(together)),
    budget: { size: "pssMiB", mib: 110 },
  });
  await end(together);
  say(`making ${values.blocks} blocks`);
  await makeBlocks(world, Number(values.blocks), "many");
  await sleep(REST_MS, { signal });
  rows.push({
    what: `coil-ipam-controller, ${values.blocks} blocks`,
    ...sizesOf(controller),
    budget: { size: "privateMiB", mib: 150 },
  });
  const services = Number(values.services);
  say(`making ${services} Services`);
  await makeServices(world, { from: SERVICES, count: services - SERVICES, endpoints: 6 });
  const proxy = world.start("service-proxy", ...serviceFlags);
  // Garbage collections return its heap some seconds later.
  await sleep(2 * REST_MS, { signal });
  rows.push({
    what: `service-proxy, ${services} Services`,
    ...(await rested(proxy)),
    budget: { size: "rssMiB", mib: 165 },
  });
  await end(proxy);
}

if (values.json) console.log(JSON.stringify({ rows }));
else {
  const text = (mib: number): string => mib.toFixed(1).padStart(8);
  console.log(`${"MiB".padEnd(86)}     RSS     PSS  private`);
  for (const { what, rssMiB, pssMiB, privateMiB, budget } of rows) {
    const limit = budget === undefined ? "" : `  ${NAMES[budget.size]} at most ${budget.mib}`;
    const kept = budget === undefined || { rssMiB, pssMiB, privateMiB }[budget.size] <= budget.mib ? "" : "  EXCEEDED";
    console.log(`${what.padEnd(84)}${text(rssMiB)}${text(pssMiB)}${text(privateMiB)}${limit}${kept}`);
  }
  const [bare, coild] = rows;
  console.log(`ratio ${((coild?.privateMiB ?? 0) / (bare?.privateMiB ?? 1)).toFixed(2)} bare-node`);
}
