import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, type TestContext, test } from "node:test";
import { systemClock } from "#base/clock";
import { Cidr } from "#base/ip";
import { nullLogger } from "#base/log";
import { BlockRequestReconciler, collectOrphans, PoolManager, reconcilePool } from "#features/ipam";
import {
  findObject,
  isKubeError,
  type KubeApi,
  KubeClient,
  KubeError,
  type KubeObject,
  type ListOptions,
  type ListPage,
  loadKubeConfig,
  type ResourceType,
  resources,
} from "#kube/client";
import {
  type AddressBlock,
  type AddressPoolSpec,
  type BlockRequest,
  COIL_FINALIZER,
  coilCrds,
  coilResources,
  NODE_LABEL,
  POOL_LABEL,
  REQUEST_LABEL,
  RESERVED_LABEL,
} from "#kube/coil";
import { type ApiServer, type FaultAction, type FaultMatch, startApiServer } from "#lab/api-server";
import { until } from "#test/lab";

const { addressBlocks, addressPools, blockRequests } = coilResources;
const log = nullLogger;
const options = { signal: AbortSignal.timeout(300_000) };
/** Reconciliations after which a fault that hits once must be overcome. */
const MAX_TRIES = 5;
/** Faults need the embedded server. */
const skip = process.env["ISTHMUS_KUBECONFIG"] !== undefined && "faults need the embedded API server";

/** A client that lets something happen between its list of nodes and its next call. */
class HookedClient extends KubeClient {
  onNodesListed: () => Promise<unknown> = async () => undefined;

  override async listAll<T extends KubeObject>(type: ResourceType<T>, list: ListOptions = {}): Promise<ListPage<T>> {
    const page = await super.listAll(type, list);
    if (type.plural === resources.nodes.plural) await this.onNodesListed();
    return page;
  }
}

let server: ApiServer | undefined;
let client: HookedClient;
let folder = "";
let serial = 0;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), "isthmus-ipam-controller-"));
  let path = process.env["ISTHMUS_KUBECONFIG"];
  if (path === undefined) {
    server = await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, log });
    path = join(folder, "kubeconfig");
    await writeFile(path, server.kubeconfig());
  }
  client = new HookedClient(await loadKubeConfig({ path }));
  for (const crd of coilCrds) {
    const body = { type: "apply", body: crd, fieldManager: "test", force: true } as const;
    await client.patch(resources.customResourceDefinitions, { name: crd.metadata.name }, body, options);
  }
  await until("Coil's API types are served", async () => {
    try {
      for (const type of Object.values(coilResources)) await client.list(type as ResourceType<KubeObject>, options);
      return true;
    } catch (error) {
      if (isKubeError(error, "not-found")) return false;
      throw error;
    }
  });
});

after(async () => {
  await client.close();
  await server?.[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

/** A pool and nodes of a test's own, and what the controller is made of; all of it is removed when the test ends. */
async function scene(t: TestContext, spec: AddressPoolSpec | undefined, nodes = ["a", "b"]) {
  serial += 1;
  const prefix = `t${process.pid}-${serial}`;
  const pool = `${prefix}-pool`;
  const nodeOf = (name: string): string => `${prefix}-${name}`;
  for (const node of nodes) await client.create(resources.nodes, { metadata: { name: nodeOf(node) } }, options);
  if (spec !== undefined) {
    await client.create(addressPools, { metadata: { name: pool, finalizers: [COIL_FINALIZER] }, spec }, options);
  }
  const pools = new PoolManager({ api: client, log }, { allocation: "first-fit" });
  const reconciler = new BlockRequestReconciler({ api: client, pools, clock: systemClock, log });
  t.after(async () => {
    server?.faults.clear();
    client.onNodesListed = async () => undefined;
    for (const type of [blockRequests, addressBlocks, addressPools, resources.nodes] as const) {
      await removeAll(type as ResourceType<KubeObject>, prefix);
    }
  });
  return {
    pool,
    pools,
    reconciler,
    nodeOf,
    /** A request of a node for a block, not answered yet. */
    ask: async (node: string, name = `req-${pool}-${nodeOf(node)}`): Promise<string> => {
      const request = { metadata: { name }, spec: { nodeName: nodeOf(node), poolName: pool } };
      return (await client.create(blockRequests, request, options)).metadata.name;
    },
    blocks: async (): Promise<AddressBlock[]> => {
      const { items } = await client.listAll(addressBlocks, { ...options, labelSelector: `${POOL_LABEL}=${pool}` });
      return [...items].sort((a, b) => a.index - b.index);
    },
    /** What somebody else did to the pool. */
    change: async (to: AddressPoolSpec): Promise<void> => {
      const stored = await client.get(addressPools, { name: pool }, options);
      await client.replace(addressPools, { ...stored, spec: to }, options);
    },
  };
}

async function removeAll(type: ResourceType<KubeObject>, prefix: string): Promise<void> {
  const { items } = await client.listAll(type, options);
  for (const { metadata } of items.filter((item) => item.metadata.name.includes(prefix))) {
    const body = { metadata: { finalizers: null } };
    await forgiving(client.patch(type, { name: metadata.name }, { type: "merge", body }, options));
    await forgiving(client.delete(type, { name: metadata.name }, options));
  }
}

/** What is gone already need not be removed. */
async function forgiving(work: Promise<unknown>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!isKubeError(error, "not-found")) throw error;
  }
}

/** Does it as a work queue would: again after each failure of the API. Returns how often it failed. */
async function persist(work: () => Promise<unknown>): Promise<number> {
  for (let failures = 0; ; failures += 1) {
    try {
      await work();
      return failures;
    } catch (error) {
      if (!isKubeError(error) || failures >= MAX_TRIES) throw error;
    }
  }
}

const get = (name: string): Promise<BlockRequest> => client.get(blockRequests, { name }, options);

/** Conditions as `type reason: message`. */
function conditionsOf({ status }: BlockRequest): string[] {
  return (status?.conditions ?? []).map(({ type, status: value, reason, message }) => {
    assert.equal(value, "True");
    return `${type} ${reason}: ${message}`;
  });
}

const FAILED = "Complete completed with failure: completed with failure";

/** Faults with the embedded server. */
function inject(match: FaultMatch, action: FaultAction): void {
  assert.ok(server !== undefined);
  server.faults.add({ match: { times: 1, ...match }, action });
}

test("request: answered with the lowest free block, which bears labels, finalizer and owner", async (t) => {
  const { pool, reconciler, ask, blocks, nodeOf } = await scene(t, {
    blockSizeBits: 1,
    subnets: [
      { ipv4: "10.2.0.0/30", ipv6: "fd02::/126" },
      { ipv4: "10.3.0.0/30", ipv6: "fd03::/126" },
    ],
  });
  const uids: string[] = [];
  for (const [at, node] of ["a", "b", "a"].entries()) {
    const name = await ask(node, `req-${pool}-${at}`);
    await reconciler.reconcile(name, options);
    const request = await get(name);
    uids.push(request.metadata.uid);
    assert.equal(request.status?.addressBlockName, `${pool}-${at}`);
    assert.deepEqual(conditionsOf(request), [`Complete allocated: allocated ${pool}-${at}`]);
    assert.match(request.status?.conditions?.[0]?.lastProbeTime ?? "", /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  }
  const made = await blocks();
  assert.deepEqual(
    made.map(({ metadata: { name }, index, ipv4, ipv6 }) => [name, index, ipv4, ipv6]),
    [
      [`${pool}-0`, 0, "10.2.0.0/31", "fd02::/127"],
      [`${pool}-1`, 1, "10.2.0.2/31", "fd02::2/127"],
      [`${pool}-2`, 2, "10.3.0.0/31", "fd03::/127"],
    ],
  );
  const { uid } = (await client.get(addressPools, { name: pool }, options)).metadata;
  const [first] = made;
  assert.deepEqual(first?.metadata.labels, {
    [POOL_LABEL]: pool,
    [NODE_LABEL]: nodeOf("a"),
    [REQUEST_LABEL]: uids[0],
  });
  assert.deepEqual(first?.metadata.finalizers, [COIL_FINALIZER]);
  assert.deepEqual(first?.metadata.ownerReferences, [
    {
      apiVersion: "coil.cybozu.com/v2",
      kind: "AddressPool",
      name: pool,
      uid,
      controller: true,
      blockOwnerDeletion: true,
    },
  ]);
});

test("request: one that is answered, replaced or gone makes no block", async (t) => {
  const { reconciler, ask, blocks } = await scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/28" }] });
  const name = await ask("a");
  await reconciler.reconcile(name, options);
  const { resourceVersion } = (await get(name)).metadata;
  await reconciler.reconcile(name, options);
  assert.equal((await get(name)).metadata.resourceVersion, resourceVersion, "an answer is not written twice");
  await client.delete(blockRequests, { name }, options);
  await reconciler.reconcile(name, options);
  assert.equal((await blocks()).length, 1);
  await ask("a");
  await reconciler.reconcile(name, options);
  assert.equal((await blocks()).length, 2, "a request of the same name is another one");
});

const ACTIONS: readonly { readonly says: string; readonly action: FaultAction }[] = [
  { says: "a conflict", action: { status: 409 } },
  { says: "an internal error", action: { status: 500 } },
  { says: "503", action: { status: 503, retryAfterSeconds: 0 } },
  { says: "a cut connection", action: { cut: "drop-connection" } },
  { says: "a lost answer", action: { cut: "lost-response" } },
];
/** Every call that answering a request makes. */
const CALLS: readonly FaultMatch[] = [
  { verb: "get", resource: "blockrequests" },
  { verb: "list", resource: "addressblocks" },
  { verb: "get", resource: "nodes" },
  { verb: "get", resource: "addresspools" },
  { verb: "create", resource: "addressblocks" },
  { verb: "update", resource: "blockrequests", subresource: "status" },
];

for (const { says, action } of ACTIONS) {
  test(`request: ${says} at any step ends in one block, and the request names it`, { skip }, async (t) => {
    for (const [at, call] of CALLS.entries()) {
      const where = `${call.verb} ${call.resource}`;
      const { pool, reconciler, ask, blocks } = await scene(t, {
        blockSizeBits: 0,
        subnets: [{ ipv4: `10.2.${at}.0/29` }],
      });
      const name = await ask("a");
      inject(call, action);
      await persist(() => reconciler.reconcile(name, options));
      assert.deepEqual(server?.faults.list(), [], `the fault at ${where} did not come to pass`);
      const [block, ...more] = await blocks();
      assert.deepEqual(more, [], `${where}: a second block`);
      const request = await get(name);
      assert.equal(request.status?.addressBlockName, block?.metadata.name, where);
      assert.deepEqual(conditionsOf(request), [`Complete allocated: allocated ${pool}-0`], where);
    }
  });
}

test("request: when the answer to its block's creation is lost the block is found, also by a new leader", {
  skip,
}, async (t) => {
  const { pool, reconciler, ask, blocks } = await scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/29" }] });
  const name = await ask("a");
  inject({ verb: "create", resource: "addressblocks" }, { cut: "lost-response" });
  await assert.rejects(reconciler.reconcile(name, options), { code: "unreachable" });
  assert.deepEqual(conditionsOf(await get(name)), []);
  assert.equal((await blocks()).length, 1);
  const pools = new PoolManager({ api: client, log }, { allocation: "first-fit" });
  await new BlockRequestReconciler({ api: client, pools, clock: systemClock, log }).reconcile(name, options);
  assert.equal((await get(name)).status?.addressBlockName, `${pool}-0`);
  assert.equal((await blocks()).length, 1);
});

test("pool: blocks that another made are stepped over, and two controllers at once make no block twice", async (t) => {
  const subnets = [{ ipv4: "10.2.0.0/28" }];
  const { pool, pools, nodeOf, blocks } = await scene(t, { blockSizeBits: 0, subnets });
  await pools.sync(pool, options);
  const other = new PoolManager({ api: client, log }, { allocation: "first-fit" });
  const first = await other.carve(pool, nodeOf("b"), "other", options);
  assert.equal(first.kind, "block");
  // The first manager's index is stale now; both go on at once.
  const carved = await Promise.all(
    Array.from({ length: 14 }, (_, at) => (at % 2 === 0 ? pools : other).carve(pool, nodeOf("a"), `r${at}`, options)),
  );
  assert.deepEqual([...new Set(carved.map(({ kind }) => kind))], ["block"]);
  assert.deepEqual(
    (await blocks()).map(({ index }) => index),
    Array.from({ length: 15 }, (_, index) => index),
  );
  assert.equal((await pools.carve(pool, nodeOf("a"), "last", options)).kind, "block");
  assert.equal((await other.carve(pool, nodeOf("a"), "none", options)).kind, "exhausted");
});

test("pool: no block overlaps one of another pool, however many are carved at once, and who is in the way is named", async (t) => {
  const wide = await scene(t, { blockSizeBits: 2, subnets: [{ ipv4: "10.4.0.0/27" }] });
  const narrow = await scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.4.0.0/27" }] });
  const { pools } = wide;
  const carved = await Promise.all(
    Array.from({ length: 40 }, (_, at) =>
      at % 4 === 0
        ? pools.carve(wide.pool, wide.nodeOf("a"), `w${at}`, options)
        : pools.carve(narrow.pool, narrow.nodeOf("a"), `n${at}`, options),
    ),
  );
  const all = [...(await wide.blocks()), ...(await narrow.blocks())].map(({ ipv4 = "" }) => Cidr.parse(ipv4));
  for (const [at, one] of all.entries()) {
    assert.deepEqual(
      all.slice(at + 1).filter((other) => other.overlaps(one)),
      [],
    );
  }
  assert.equal(carved.filter(({ kind }) => kind === "block").length, all.length);
  assert.equal(
    all.reduce((sum, cidr) => sum + Number(cidr.size), 0),
    32,
    "and nothing is left unused",
  );
  const name = await wide.ask("b");
  await wide.reconciler.reconcile(name, options);
  const [, failed = ""] = conditionsOf(await get(name));
  assert.match(
    failed,
    /^Failed out of blocks: pool \S+ does not have free blocks: what is left of it overlaps block \S+-pool-\d+ \(10\.4\./,
  );

  // A block of the other pool that goes makes room; another controller's memory is of no help to it.
  const mine = await wide.blocks();
  const theirs = await narrow.blocks();
  for (const block of theirs) {
    await client.replace(addressBlocks, { ...block, metadata: { ...block.metadata, finalizers: [] } }, options);
    await client.delete(addressBlocks, { name: block.metadata.name }, options);
  }
  await pools.sync(narrow.pool, options);
  const room = 8 - mine.length;
  for (let at = 0; at < room; at += 1) {
    assert.equal((await pools.carve(wide.pool, wide.nodeOf("b"), `again${at}`, options)).kind, "block");
  }
  assert.equal((await pools.carve(wide.pool, wide.nodeOf("b"), "full", options)).kind, "exhausted");
  const fresh = new PoolManager({ api: client, log }, { allocation: "first-fit" });
  assert.equal((await fresh.carve(narrow.pool, narrow.nodeOf("b"), "late", options)).kind, "exhausted");
});

test("pool: millions of blocks that another one covers are stepped over at once", { timeout: 20_000 }, async (t) => {
  const wide = await scene(t, { blockSizeBits: 24, subnets: [{ ipv4: "11.0.0.0/8", ipv6: "fd11::/104" }] });
  const subnets = [{ ipv4: "11.0.0.0/8" }, { ipv4: "12.0.0.0/24" }];
  const narrow = await scene(t, { blockSizeBits: 0, subnets });
  assert.equal((await wide.pools.carve(wide.pool, wide.nodeOf("a"), "w", options)).kind, "block");
  assert.equal((await wide.pools.carve(narrow.pool, narrow.nodeOf("a"), "n", options)).kind, "block");
  assert.deepEqual(
    (await narrow.blocks()).map(({ index, ipv4 }) => `${index} ${ipv4}`),
    [`${2 ** 24} 12.0.0.0/32`],
  );
});

test("pool: a block size that was changed under use makes no block that overlaps an older one", async (t) => {
  const subnets = [{ ipv4: "10.5.0.0/28" }];
  const { pool, nodeOf, blocks, change } = await scene(t, { blockSizeBits: 2, subnets });
  const before = new PoolManager({ api: client, log }, { allocation: "first-fit" });
  for (const at of [0, 1]) await before.carve(pool, nodeOf("a"), `r${at}`, options);
  await change({ blockSizeBits: 1, subnets });
  const after = new PoolManager({ api: client, log }, { allocation: "first-fit" });
  for (const pools of [before, after]) await pools.carve(pool, nodeOf("b"), "more", options);
  assert.deepEqual(
    (await blocks()).map(({ index, ipv4 }) => `${index} ${ipv4}`),
    ["0 10.5.0.0/30", "1 10.5.0.4/30", "4 10.5.0.8/31", "5 10.5.0.10/31"],
  );
});

test("pool and request: without a spec, as an older schema let them be stored, they are refused and stop nobody", async (t) => {
  const { pool, nodeOf } = await scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/29" }] });
  const lacking = `${pool}-none`;
  for (const type of [addressPools, blockRequests] as const) {
    await assert.rejects(client.create(type as ResourceType<KubeObject>, { metadata: { name: lacking } }, options), {
      code: "invalid",
      message: /spec/,
    });
  }
  /** The API with one object as it would have been stored. */
  const api: KubeApi = Object.assign(Object.create(client) as KubeClient, {
    get: async (type: ResourceType<KubeObject>, ref: { readonly name: string }) => {
      if (ref.name !== lacking) return client.get(type, ref, options);
      return { metadata: { name: lacking, uid: "u", resourceVersion: "1" } };
    },
    listAll: (type: ResourceType<KubeObject>, list: ListOptions) => client.listAll(type, list),
    replaceStatus: async () => Promise.reject(new KubeError("invalid", "spec: Required value")),
  });
  const pools = new PoolManager({ api, log }, { allocation: "first-fit" });
  assert.deepEqual(await pools.carve(lacking, nodeOf("a"), "r", options), {
    kind: "invalid",
    fault: "spec: Required value: the pool's subnets",
  });
  assert.equal(await pools.sync(lacking, options), 0);
  await new BlockRequestReconciler({ api, pools, clock: systemClock, log }).reconcile(lacking, options);
});

test("request: of a pool or node that does not exist fails and says so", async (t) => {
  const missing = await scene(t, undefined);
  const astray = await missing.ask("a");
  await missing.reconciler.reconcile(astray, options);
  assert.deepEqual(conditionsOf(await get(astray)), [
    FAILED,
    `Failed pool not found: pool ${missing.pool} does not exist`,
  ]);
  const { reconciler, ask, blocks, nodeOf } = await scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/29" }] });
  const name = await ask("nobody");
  await reconciler.reconcile(name, options);
  assert.deepEqual(conditionsOf(await get(name)), [
    FAILED,
    `Failed node not found: node ${nodeOf("nobody")} does not exist`,
  ]);
  assert.deepEqual(await blocks(), []);
});

test("request: of a pool that cannot be used fails with the field; corrected, the next is answered", async (t) => {
  const { pool, pools, reconciler, ask, blocks, change } = await scene(t, { subnets: [{ ipv4: "10.0.0.0/99" }] });
  assert.equal(await pools.sync(pool, options), 0);
  assert.deepEqual(pools.stats, [{ pool, maxBlocks: 0, allocatedBlocks: 0 }]);
  const name = await ask("a");
  await reconciler.reconcile(name, options);
  const [complete, failed = ""] = conditionsOf(await get(name));
  assert.equal(complete, FAILED);
  assert.ok(failed.startsWith(`Failed invalid pool: pool ${pool}: spec.subnets[0].ipv4: Invalid value: "10.0.0.0/99"`));
  assert.deepEqual(await blocks(), []);
  await change({ blockSizeBits: 0, subnets: [{ ipv4: "10.0.0.0/29" }] });
  const next = await ask("b");
  await reconciler.reconcile(next, options);
  assert.equal((await get(next)).status?.addressBlockName, `${pool}-0`);
  assert.deepEqual(pools.stats, [{ pool, maxBlocks: 8, allocatedBlocks: 1 }]);
});

test("request: of an exhausted pool fails; an appended subnet or a block given back answers the next", async (t) => {
  const spec = { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/32" }] };
  const { pool, pools, reconciler, ask, blocks, change } = await scene(t, spec);
  const answer = async (node: string, name?: string): Promise<BlockRequest> => {
    const asked = await ask(node, name);
    await reconciler.reconcile(asked, options);
    return get(asked);
  };
  assert.equal((await answer("a")).status?.addressBlockName, `${pool}-0`);
  const refused = await answer("b");
  assert.equal(refused.status?.addressBlockName, undefined);
  assert.deepEqual(conditionsOf(refused), [FAILED, `Failed out of blocks: pool ${pool} does not have free blocks`]);
  await change({ blockSizeBits: 0, subnets: [...spec.subnets, { ipv4: "10.3.0.0/32" }] });
  assert.equal((await answer("b", `${pool}-again`)).status?.addressBlockName, `${pool}-1`);
  const [first] = await blocks();
  assert.ok(first !== undefined);
  await client.replace(addressBlocks, { ...first, metadata: { ...first.metadata, finalizers: [] } }, options);
  await client.delete(addressBlocks, { name: first.metadata.name }, options);
  await reconcilePool({ api: client, pools, log }, pool, options);
  assert.equal((await answer("b", `${pool}-third`)).status?.addressBlockName, `${pool}-0`);
});

test("pool: one that is being deleted gives no block, and goes when its last block is gone and not before", async (t) => {
  const { pool, pools, reconciler, ask, blocks } = await scene(t, {
    blockSizeBits: 0,
    subnets: [{ ipv4: "10.2.0.0/29" }],
  });
  const deps = { api: client, pools, log };
  for (const node of ["a", "b"]) await reconciler.reconcile(await ask(node), options);
  await reconcilePool(deps, pool, options);
  await client.delete(addressPools, { name: pool }, options);
  const late = await ask("a", `${pool}-late`);
  await reconciler.reconcile(late, options);
  assert.deepEqual(conditionsOf(await get(late))[1], `Failed out of blocks: pool ${pool} does not have free blocks`);
  for (const block of await blocks()) {
    await reconcilePool(deps, pool, options);
    const { metadata } = await client.get(addressPools, { name: pool }, options);
    assert.deepEqual(metadata.finalizers, [COIL_FINALIZER], "a pool with blocks is held");
    await client.replace(addressBlocks, { ...block, metadata: { ...block.metadata, finalizers: [] } }, options);
    await client.delete(addressBlocks, { name: block.metadata.name }, options);
  }
  if (server !== undefined) inject({ verb: "update", resource: "addresspools" }, { status: 409 });
  assert.equal(await persist(() => reconcilePool(deps, pool, options)), server === undefined ? 0 : 1);
  assert.equal(await findObject(client, addressPools, { name: pool }, options), undefined);
  await reconcilePool(deps, pool, options);
  assert.deepEqual(pools.stats, [], "a pool that is gone is forgotten");
});

test("pool: the answer to its release may be lost", { skip }, async (t) => {
  const { pool, pools } = await scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/29" }] });
  await client.delete(addressPools, { name: pool }, options);
  inject({ verb: "update", resource: "addresspools" }, { cut: "lost-response" });
  assert.equal(await persist(() => reconcilePool({ api: client, pools, log }, pool, options)), 1);
  assert.equal(await findObject(client, addressPools, { name: pool }, options), undefined);
});

/** Blocks of nodes a, b and c, one of c's reserved; then a and b are gone. */
async function orphans(t: TestContext) {
  const made = await scene(t, { blockSizeBits: 0, subnets: [{ ipv4: "10.2.0.0/28" }] }, ["a", "b", "c"]);
  const { pool, pools, nodeOf } = made;
  for (const [at, node] of ["a", "b", "c", "c"].entries()) await pools.carve(pool, nodeOf(node), `r${at}`, options);
  const reserved = { metadata: { labels: { [RESERVED_LABEL]: "true" } } };
  await client.patch(addressBlocks, { name: `${pool}-3` }, { type: "merge", body: reserved }, options);
  for (const node of ["a", "b"]) await client.delete(resources.nodes, { name: nodeOf(node) }, options);
  return { ...made, indexes: async () => (await made.blocks()).map(({ index }) => index) };
}

test("orphans: blocks of nodes that are gone are deleted, those of others stay, reserved ones too", async (t) => {
  const { indexes } = await orphans(t);
  assert.equal(await collectOrphans({ api: client, log }, options), 2);
  assert.deepEqual(await indexes(), [2, 3]);
  assert.equal(await collectOrphans({ api: client, log }, options), 0);
});

test("orphans: a block whose node comes back while they are collected stays", async (t) => {
  const { indexes, nodeOf } = await orphans(t);
  client.onNodesListed = () => client.create(resources.nodes, { metadata: { name: nodeOf("a") } }, options);
  assert.equal(await collectOrphans({ api: client, log }, options), 1);
  assert.deepEqual(await indexes(), [0, 2, 3]);
});

test("orphans: a block that was given to another node, or made anew, meanwhile stays", async (t) => {
  const { indexes, nodeOf, pool, pools } = await orphans(t);
  client.onNodesListed = async () => {
    const labels = { [NODE_LABEL]: nodeOf("c") };
    await client.patch(
      addressBlocks,
      { name: `${pool}-0` },
      { type: "merge", body: { metadata: { labels } } },
      options,
    );
    await removeAll(addressBlocks as ResourceType<KubeObject>, `${pool}-1`);
    await pools.sync(pool, options);
    await pools.carve(pool, nodeOf("c"), "anew", options);
  };
  await collectOrphans({ api: client, log }, options);
  assert.deepEqual(await indexes(), [0, 1, 2, 3]);
});

test("orphans: one block that cannot be deleted does not stop the others, and the next pass deletes it", {
  skip,
}, async (t) => {
  const { indexes, pool } = await orphans(t);
  inject({ verb: "update", resource: "addressblocks", name: `${pool}-0` }, { status: 500 });
  await assert.rejects(collectOrphans({ api: client, log }, options), {
    code: "api-unavailable",
    message: "1 orphan blocks could not be deleted",
  });
  assert.deepEqual(await indexes(), [0, 2, 3]);
  assert.equal(await collectOrphans({ api: client, log }, options), 1);
  assert.deepEqual(await indexes(), [2, 3]);
});

test("orphans: conflicts are overcome at once, and an answer that is lost by the next pass", { skip }, async (t) => {
  const { indexes, pool } = await orphans(t);
  inject({ verb: "update", resource: "addressblocks", name: `${pool}-0` }, { status: 409 });
  inject({ verb: "delete", resource: "addressblocks", name: `${pool}-0` }, { status: 409 });
  inject({ verb: "delete", resource: "addressblocks", name: `${pool}-1` }, { cut: "lost-response" });
  await assert.rejects(collectOrphans({ api: client, log }, options), { code: "api-unavailable" });
  assert.deepEqual(server?.faults.list(), []);
  assert.deepEqual(await indexes(), [2, 3]);
  assert.equal(await collectOrphans({ api: client, log }, options), 0);
});
