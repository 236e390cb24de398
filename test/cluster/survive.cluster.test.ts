// in turn: pods must start while daemons are killed, which other work on the machine makes slow
/**
 * The promise of the pod network under many faults at once: daemons killed, the API server failing in
 * every way it can. Addresses are never on two pods, and afterwards nothing is left over.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import { sleep } from "#base/async";
import { systemClock } from "#base/clock";
import { isKernelError, openKernel } from "#kernel/net";
import { type Draft, isKubeError, KubeClient, loadKubeConfig, type Pod, resources } from "#kube/client";
import { blockRequestResult, coilResources } from "#kube/coil";
import { isRunning, labPaths } from "#lab/host";
import { isthmus, leftOf, namespacesOf, processesOf, removeLab, stateOf, until } from "#test/lab";

const LAB = "ct-survive";
const NODES = ["node1", "node2", "node3"];
/** Duration of the faults, in milliseconds; longer if pods start slowly, until enough of them ran at once. ISTHMUS_SOAK=full: a minute. */
const STORM_MS = process.env["ISTHMUS_SOAK"] === "full" ? 60_000 : 20_000;
const LONGEST_STORM_MS = 150_000;
/** After STORM_MS the faults and the changes come slower and slower: half as often after this time, a third after twice. */
const SLOW_DOWN_MS = 15_000;
/** Pods that must run at once at some moment of the storm. */
const ENOUGH_PODS = 8;
/** The time that the cluster may take to come to rest, in milliseconds. */
const SETTLE_MS = 60_000;
/** The number of bare pods at once. */
const BARE = 6;
/** Two Deployments, a pool each; how many replicas they are given in turn. */
const DEPLOYMENTS = [
  { name: "web", namespace: "default", replicas: [8, 2, 6, 0, 7, 3] },
  { name: "api", namespace: "dual", replicas: [3, 7, 0, 6, 2, 8] },
];

let api: KubeClient;

before(async () => {
  const { code, stderr } = await isthmus(["lab", "--json", "--keep", `--name=${LAB}`, "--nodes=3", "--pods=0"]);
  assert.equal(code, 0, stderr);
  // The suite's programs say that they are of Isthmus; faults are for them alone.
  api = new KubeClient(await loadKubeConfig({ path: labPaths(LAB).kubeconfig, clock: systemClock }), {
    userAgent: "survive-test",
    clock: systemClock,
  });
});

after(async () => {
  await api?.close();
  await removeLab(LAB);
});

async function faults(body: object): Promise<Record<string, unknown>> {
  return (await api.request({ method: "POST", path: "/lab/faults", body })) as Record<string, unknown>;
}

/** Five in a hundred conflicts, five in a hundred 5xx, and answers lost before and after the commit. */
async function makeApiFail(): Promise<void> {
  const userAgent = "isthmus";
  const writes = ["create", "update", "patch", "delete"];
  for (const [match, action] of [
    [{ verb: writes, probability: 0.05 }, { status: 409 }],
    [{ probability: 0.025 }, { status: 500 }],
    [{ probability: 0.025 }, { status: 503, retryAfterSeconds: 0 }],
    [{ verb: ["list", "watch"], probability: 0.05 }, { status: 410 }],
    [{ verb: writes, probability: 0.03 }, { cut: "lost-response" }],
    [{ probability: 0.02 }, { cut: "drop-connection" }],
    [{ verb: writes, probability: 0.1 }, { latencyMs: 200 }],
  ] as const) {
    await faults({ match: { ...match, userAgent }, action });
  }
}

/** Ends all watches each second, in turn by a cut, by 410, and by 410 to those that resume. */
async function breakWatches(signal: AbortSignal): Promise<number> {
  let ended = 0;
  for (let turn = 0; !signal.aborted; turn += 1) {
    if (turn % 3 === 2) await faults({ compact: true });
    const { watches } = await faults({ watches: turn % 3 === 1 ? "expire" : "drop", match: { userAgent: "isthmus" } });
    ended += Number(watches);
    await pause(1000, signal);
  }
  return ended;
}

/**
 * Kills the coild of one node after the other: in one round at whatever it does, its start included, in the next when it has served for
 * a while. So pods can start on a machine on which a coild takes longer to start than a round. Returns how often each was hit.
 */
async function killDaemons({ signal, pace }: Storm): Promise<ReadonlyMap<string, number>> {
  const kills = new Map<string, number>();
  for (let turn = 0; !signal.aborted; turn += 1) {
    const node = NODES[turn % NODES.length] ?? "";
    if (Math.floor(turn / NODES.length) % 2 === 1) await untilServing(node, signal);
    await pause(900 * pace(), signal);
    const child = stateOf(LAB).children.find(({ name }) => name === `coild-${node}`);
    if (child !== undefined && kill(child.pid)) kills.set(node, (kills.get(node) ?? 0) + 1);
  }
  return kills;
}

/** Returns when the coild of `node` accepts connections, or when the storm is over. */
async function untilServing(node: string, signal: AbortSignal): Promise<void> {
  while (!signal.aborted && !(await accepts(labPaths(LAB).socketOf(node)))) await pause(50, signal);
}

async function accepts(path: string): Promise<boolean> {
  const socket = connect(path);
  try {
    await once(socket, "connect");
    return true;
  } catch (error) {
    if (!["ECONNREFUSED", "ENOENT"].includes((error as NodeJS.ErrnoException).code ?? "")) throw error;
    return false;
  } finally {
    socket.destroy();
  }
}

/** False when the process had ended already. */
function kill(pid: number): boolean {
  try {
    process.kill(pid, "SIGKILL");
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
    return false;
  }
}

async function scale(deployment: (typeof DEPLOYMENTS)[number], replicas: number): Promise<void> {
  const { name, namespace } = deployment;
  await api.patch(resources.deployments, { name, namespace }, { type: "merge", body: { spec: { replicas } } });
}

function barePod(turn: number): Draft<Pod> {
  return {
    metadata: { name: `bare-${turn}`, namespace: turn % 2 === 0 ? "default" : "dual", labels: { app: "bare" } },
    spec: { terminationGracePeriodSeconds: 0, containers: [{ name: "main", image: "lab.isthmus.dev/pause" }] },
  };
}

async function deleteBare(turn: number): Promise<void> {
  const { name, namespace } = barePod(turn).metadata;
  try {
    await api.delete(resources.pods, { name: name ?? "", namespace });
  } catch (error) {
    if (!isKubeError(error, "not-found")) throw error;
  }
}

/** Pods come and go. Returns the number of the last bare pod. */
async function churn({ signal, pace }: Storm): Promise<number> {
  let turn = 0;
  for (; !signal.aborted; turn += 1) {
    await api.create(resources.pods, barePod(turn));
    if (turn >= BARE) await deleteBare(turn - BARE);
    if (turn % 3 === 0) {
      for (const one of DEPLOYMENTS) await scale(one, one.replicas[(turn / 3) % one.replicas.length] ?? 0);
    }
    await pause(400 * pace(), signal);
  }
  return turn - 1;
}

/** Addresses that two pods have at one moment, by the API server. */
async function sharedInApi(): Promise<{ readonly running: number; readonly shared: readonly string[] }> {
  const { items } = await api.listAll(resources.pods);
  const running = items.filter(
    ({ metadata, status }) => status?.phase === "Running" && metadata.deletionTimestamp === undefined,
  );
  const holders = running.flatMap(({ metadata, status }) =>
    (status?.podIPs ?? []).map(({ ip }) => ({ ip: String(ip), who: `${metadata.namespace}/${metadata.name}` })),
  );
  return { running: running.length, shared: sharedOf(holders) };
}

/** Addresses that two pods' namespaces have. They are not read at one moment, so findings are read again. */
function sharedInKernel(): readonly string[] {
  const first = sharedOf(kernelHolders());
  if (first.length === 0) return [];
  const second = sharedOf(kernelHolders());
  return first.filter((one) => second.includes(one));
}

function kernelHolders(): { readonly ip: string; readonly who: string }[] {
  const kernel = openKernel();
  return namespacesOf(LAB)
    .filter((name) => name.includes("-pod-"))
    .flatMap((name) => {
      try {
        using netns = kernel.openNetNs({ name });
        using stack = kernel.openStack(netns);
        const addresses = stack.addresses.list().map(({ address }) => String(address).split("/")[0] ?? "");
        return addresses.filter((ip) => /^(10\.|fd10:)/.test(ip)).map((ip) => ({ ip, who: name }));
      } catch (error) {
        // Deleted since it was listed.
        if (!isKernelError(error)) throw error;
        return [];
      }
    });
}

function sharedOf(holders: readonly { readonly ip: string; readonly who: string }[]): string[] {
  return [...Map.groupBy(holders, ({ ip }) => ip)]
    .filter(([, all]) => all.length > 1)
    .map(([ip, all]) => `${ip}: ${all.map(({ who }) => who).join(" and ")}`);
}

interface Storm {
  readonly signal: AbortSignal;
  /** It may end when its time is over. */
  readonly enough: () => void;
  /** Pauses are this many times as long; 1 until STORM_MS. A machine that starts no pod between two kills at first does so in the end. */
  readonly pace: () => number;
}

function startStorm(): Storm {
  const over = new AbortController();
  const { promise: seenEnough, resolve } = Promise.withResolvers<void>();
  const longest = AbortSignal.timeout(LONGEST_STORM_MS);
  void Promise.all([sleep(STORM_MS), seenEnough]).then(() => over.abort());
  const start = performance.now();
  const pace = (): number => 1 + Math.max(0, performance.now() - start - STORM_MS) / SLOW_DOWN_MS;
  return { signal: AbortSignal.any([over.signal, longest]), enough: resolve, pace };
}

/** Looks for addresses on two pods all the while. */
async function watchAddresses({
  signal,
  enough,
}: Storm): Promise<{ readonly samples: number; readonly most: number; readonly shared: ReadonlySet<string> }> {
  const shared = new Set<string>();
  let samples = 0;
  let most = 0;
  for (; !signal.aborted; samples += 1) {
    const now = await sharedInApi();
    most = Math.max(most, now.running);
    if (most >= ENOUGH_PODS) enough();
    for (const one of [...now.shared, ...sharedInKernel()]) shared.add(one);
    await pause(150, signal);
  }
  return { samples, most, shared };
}

/** Sleeps, or not until the end when the storm is over. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  if (!signal.aborted) await Promise.race([sleep(ms), new Promise((resolve) => onceAborted(signal, resolve))]);
}

function onceAborted(signal: AbortSignal, then: (value: undefined) => void): void {
  signal.addEventListener("abort", () => then(undefined), { once: true });
}

async function allRunning(wanted: number): Promise<boolean> {
  const { items } = await api.listAll(resources.pods);
  const good = items.filter(
    ({ metadata, status }) => status?.phase === "Running" && metadata.deletionTimestamp === undefined,
  );
  return items.length === wanted && good.length === wanted;
}

async function describePods(): Promise<string> {
  const { items } = await api.listAll(resources.pods);
  return items
    .filter(({ status, metadata }) => status?.phase !== "Running" || metadata.deletionTimestamp !== undefined)
    .map(({ metadata, spec, status }) => `${metadata.name}@${spec?.nodeName} ${status?.phase} ${status?.message ?? ""}`)
    .join("; ");
}

interface Audit {
  readonly ok: boolean;
  readonly checked: Record<"nodes" | "blocks" | "pods" | "links" | "exportedRoutes", number>;
  readonly findings: readonly { readonly text: string }[];
}

async function audit(): Promise<Audit> {
  const paths = labPaths(LAB);
  const sockets = NODES.map((node) => `--socket=${paths.socketOf(node)}`);
  const { stdout, stderr } = await isthmus(["audit", "--json", `--kubeconfig=${paths.kubeconfig}`, ...sockets]);
  if (stdout === "") return { ok: false, checked: NOTHING, findings: [{ text: stderr.trim() }] };
  return JSON.parse(stdout) as Audit;
}

const NOTHING = { nodes: 0, blocks: 0, pods: 0, links: 0, exportedRoutes: 0 };

/** The audit without findings, after it has compared everything. Fails with its findings after the deadline. */
async function goodAudit(wanted: Partial<Audit["checked"]>): Promise<Audit> {
  let last: Audit | undefined;
  const right = ({ ok, checked }: Audit): boolean =>
    ok && Object.entries(wanted).every(([name, count]) => checked[name as keyof typeof checked] === count);
  await until(
    `the audit finds nothing, ${JSON.stringify(wanted)}`,
    async () => {
      last = await audit();
      return right(last);
    },
    { deadlineMs: SETTLE_MS, everyMs: 500, seen: () => JSON.stringify(last) },
  );
  assert.ok(last !== undefined);
  return last;
}

test("pod network: kills, failing writes and lost watches put no address on two pods and leave nothing over", {
  timeout: LONGEST_STORM_MS + 3 * SETTLE_MS,
}, async (context) => {
  const restartsBefore = new Map(stateOf(LAB).children.map(({ name, restarts }) => [name, restarts]));
  await makeApiFail();
  const storm = startStorm();
  const [last, kills, watches, seen] = await Promise.all([
    churn(storm),
    killDaemons(storm),
    breakWatches(storm.signal),
    watchAddresses(storm),
  ]);
  const { rules } = (await api.request({ method: "GET", path: "/lab/faults" })) as {
    rules: { rule: object; hits: number }[];
  };
  await api.request({ method: "DELETE", path: "/lab/faults" });

  // That the storm was one.
  context.diagnostic(
    `${last + 1} bare pods, ${[...kills.values()].reduce((a, b) => a + b, 0)} kills, ${watches} watches ended, ${seen.samples} samples, at most ${seen.most} pods ran, hits ${rules.map(({ hits }) => hits).join(" ")}`,
  );
  for (const node of NODES) {
    assert.ok((kills.get(node) ?? 0) >= 3, `coild of ${node} was killed ${kills.get(node) ?? 0} times`);
    const child = stateOf(LAB).children.find(({ name }) => name === `coild-${node}`);
    assert.ok((child?.restarts ?? 0) > (restartsBefore.get(`coild-${node}`) ?? 0), `coild of ${node} did not restart`);
  }
  assert.ok(watches >= 50, `only ${watches} watches were ended`);
  for (const { rule, hits } of rules) assert.ok(hits > 0, `no request was hit by ${JSON.stringify(rule)}`);
  assert.ok(seen.samples >= 30 && seen.most >= ENOUGH_PODS, `${seen.samples} samples of at most ${seen.most} pods`);
  assert.deepEqual([...seen.shared], []);
  assert.ok(isRunning(stateOf(LAB)), "the lab's holding process ended");

  const settleStart = performance.now();
  for (const one of DEPLOYMENTS) await scale(one, 5);
  const wanted = 10 + Math.min(BARE, last + 1);
  let waiting = "";
  await until(
    `${wanted} pods run once the API server is well again`,
    async () => {
      if (await allRunning(wanted)) return true;
      waiting = await describePods();
      return false;
    },
    { deadlineMs: SETTLE_MS, everyMs: 200, seen: () => waiting },
  );
  await goodAudit({ nodes: 3, pods: wanted, links: wanted });
  assert.deepEqual((await sharedInApi()).shared, []);
  assert.deepEqual(sharedInKernel(), []);
  context.diagnostic(`settled in ${((performance.now() - settleStart) / 1000).toFixed(1)} s`);

  const emptyStart = performance.now();
  for (const one of DEPLOYMENTS) await scale(one, 0);
  for (let turn = Math.max(0, last - BARE); turn <= last; turn += 1) await deleteBare(turn);
  await goodAudit({ ...NOTHING, nodes: 3 });
  assert.deepEqual((await api.listAll(coilResources.addressBlocks)).items, []);
  // One that could not be removed stays, answered; the next request of its pool and node replaces it.
  const requests = (await api.listAll(coilResources.blockRequests)).items;
  const open = requests.filter((request) => blockRequestResult(request).state === "in-progress");
  assert.deepEqual(open, []);
  assert.ok(requests.length <= NODES.length * DEPLOYMENTS.length, `${requests.length} requests are left`);
  await until("no pod's namespace is left", () => namespacesOf(LAB).every((name) => !name.includes("-pod-")), {
    seen: () => namespacesOf(LAB).join(" "),
  });
  context.diagnostic(`emptied in ${((performance.now() - emptyStart) / 1000).toFixed(1)} s`);
});

test("lab: down removes a lab after all of that", { timeout: 60_000 }, async () => {
  const known = processesOf(LAB);
  assert.ok(known.length > 0);
  await removeLab(LAB);
  assert.deepEqual(leftOf(LAB, known), []);
});
