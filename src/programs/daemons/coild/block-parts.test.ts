import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { poll, TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import { parseFlags } from "#base/config";
import { Health } from "#base/health";
import { nullLogger } from "#base/log";
import { createRegistry } from "#base/metrics";
import { FakeKernel } from "#kernel/fake";
import { type Draft, KubeClient, loadKubeConfig, type Node, resources } from "#kube/client";
import { type AddressBlock, coilCrds, coilResources, NODE_LABEL } from "#kube/coil";
import { EventRecorder } from "#kube/events";
import { createInformer } from "#kube/informer";
import { type SeedObject, startApiServer } from "#lab/api-server";
import { blockParts } from "./block-parts.ts";
import { coildFlags } from "./flags.ts";
import { coildMetrics } from "./metrics.ts";
import type { KnownNamespace } from "./namespaces.ts";
import { openNode } from "./node-state.ts";

const NODE = "node-1";
const DEADLINE_MS = 5000;

/** A coild with address management on the fake kernel and the embedded API server; none of its parts runs. */
async function open(t: TestContext, ...argv: readonly string[]) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-coild-"));
  const server = await startApiServer({
    listen: [{ host: "127.0.0.1", port: 0 }],
    log: nullLogger,
    clock: systemClock,
  });
  server.seed(coilCrds as unknown as readonly SeedObject[]);
  writeFileSync(join(folder, "kubeconfig"), server.kubeconfig({ server: server.urls[0] ?? "" }));
  const connection = await loadKubeConfig({ path: join(folder, "kubeconfig"), clock: systemClock });
  const api = new KubeClient(connection, { clock: systemClock });
  const opened = new AsyncDisposableStack();
  t.after(async () => {
    await opened.disposeAsync();
    await api.close();
    await server[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  });
  const kernel = new FakeKernel();
  const own = opened.use(kernel.openNetNs("own"));
  const registry = createRegistry();
  const flags = ["--node-addresses=any", "--source-guard=off", `--socket=${folder}/coild.sock`, ...argv];
  const group = new TaskGroup();
  const ends: (() => Promise<void>)[] = [];
  const health = new Health({ log: nullLogger });
  const kit = {
    ...{ api, registry, health, log: nullLogger, metrics: coildMetrics(registry), environment: NODE },
    values: parseFlags(coildFlags, flags).values,
    signal: group.signal,
    use: <T extends Disposable | AsyncDisposable>(resource: T): T => opened.use(resource),
    onBug: (error: unknown) => group.fail(error),
    atEnd: (work: () => Promise<void>) => void ends.push(work),
  };
  const common = {
    ...{ kernel, own, guard: undefined, recording: undefined, openClients: () => undefined },
    namespaces: createInformer(api, resources.namespaces, {
      transform: ({ metadata }) => ({ metadata }) as unknown as KnownNamespace,
      clock: systemClock,
    }),
    events: new EventRecorder(api, { controller: "coild", instance: NODE, clock: systemClock }),
  };
  const node = openNode(kit, common);
  const makeNode = () => api.create(resources.nodes, { metadata: { name: NODE } } as Draft<Node>);
  const makeBlock = (name: string, ipv4: string) =>
    api.create(coilResources.addressBlocks, {
      metadata: { name, labels: { [NODE_LABEL]: NODE, "coil.cybozu.com/pool": "default" } },
      index: 0,
      ipv4,
    } as Draft<AddressBlock>);
  const parts = blockParts(kit, node);
  return { api, kernel, node, health, group, ends, parts, makeNode, makeBlock };
}

/** The part of this name runs until the group aborts. */
function start({ parts, group }: Awaited<ReturnType<typeof open>>, name: string): void {
  const part = parts.find((one) => one.name === name) ?? assert.fail(`there is no part ${name}`);
  group.spawn((signal) => part.run({ signal }));
}

/** The exported routes, as the fake kernel prints them, once there are some. */
const exported = (kernel: FakeKernel): Promise<string> =>
  poll(() => routesOf(kernel), {
    until: (text) => text !== "",
    everyMs: 5,
    deadlineMs: DEADLINE_MS,
    clock: systemClock,
  });

const routesOf = (kernel: FakeKernel): string =>
  kernel
    .dump("own")
    .split("\n")
    .filter((line) => /table 119\b/.test(line))
    .join("\n");

test("blocks: the part waits for the Node, then this node's blocks are announced as routes, and ADDs that wait go on", async (t) => {
  const bed = await open(t);
  const { kernel, node, group } = bed;
  await bed.makeBlock("default-0", "10.64.0.0/27");
  const known = node.blocks.wait({ signal: AbortSignal.timeout(DEADLINE_MS) });
  start(bed, "blocks");
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([node.blocks.isKnown, routesOf(kernel)], [false, ""]);
  await bed.makeNode();
  await known;
  assert.equal(node.blocks.isKnown, true);
  assert.match(await exported(kernel), /^ *route 10\.64\.0\.0\/27 /);
  group.abort();
  await group.wait();
});

test("blocks: with --clear-routes-on-shutdown routes are withdrawn at the end if the Node is gone, and else stay", async (t) => {
  const bed = await open(t, "--clear-routes-on-shutdown=true");
  const { api, kernel, group, ends } = bed;
  await bed.makeNode();
  await bed.makeBlock("default-0", "10.64.0.0/27");
  start(bed, "blocks");
  const before = await exported(kernel);
  group.abort();
  await group.wait();
  const [clear = assert.fail(), ...others] = ends;
  assert.equal(others.length, 0);
  await clear();
  assert.equal(routesOf(kernel), before);
  await api.delete(resources.nodes, { name: NODE });
  await clear();
  assert.equal(routesOf(kernel), "");
});

test("blocks: without --clear-routes-on-shutdown nothing is withdrawn at the end", async (t) => {
  assert.equal((await open(t)).ends.length, 0);
});
