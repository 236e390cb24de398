import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { isKubeError, KubeClient, loadKubeConfig, resources } from "#kube/client";
import { coilCrds, coilResources } from "#kube/coil";
import { createInformer } from "#kube/informer";
import { runAsLeader } from "#kube/lease";
import { type ApiServer, startApiServer } from "#lab/api-server";
import { until } from "#test/lab";

let server: ApiServer | undefined;
let client: KubeClient;
const folders: string[] = [];
const namespace = `kube-client-${process.pid}`;
const signal = AbortSignal.timeout(60_000);

before(async () => {
  let path = process.env["ISTHMUS_KUBECONFIG"];
  if (path === undefined) {
    server = await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, log: nullLogger, clock: systemClock });
    const folder = await mkdtemp(join(tmpdir(), "isthmus-kube-client-"));
    folders.push(folder);
    path = join(folder, "kubeconfig");
    await writeFile(path, server.kubeconfig());
  }
  client = new KubeClient(await loadKubeConfig({ path, clock: systemClock }), { clock: systemClock });
  await client.create(resources.namespaces, { metadata: { name: namespace } }, { signal });
});

after(async () => {
  await client.delete(resources.namespaces, { name: namespace });
  await client.close();
  await server?.[Symbol.asyncDispose]();
  for (const folder of folders) await rm(folder, { recursive: true });
});

const config = (name: string, data: Record<string, string> = {}) => ({
  metadata: { name, namespace, labels: { t: "1" } },
  data,
});

test("client: create, conflict, replace, patches, delete with preconditions", async () => {
  const made = await client.create(resources.configMaps, config("a", { x: "1" }));
  await assert.rejects(client.create(resources.configMaps, config("a")), { code: "already-exists" });
  const second = await client.replace(resources.configMaps, { ...made, data: { x: "2" } });
  await assert.rejects(client.replace(resources.configMaps, { ...made, data: { x: "3" } }), { code: "conflict" });
  const ref = { name: "a", namespace };
  await client.patch(resources.configMaps, ref, {
    type: "json",
    operations: [{ op: "add", path: "/data/j", value: "1" }],
  });
  await client.patch(resources.configMaps, ref, { type: "merge", body: { data: { x: null } } });
  await client.patch(resources.configMaps, ref, { type: "strategic", body: { data: { s: "1" } } });
  const applied = await client.patch(resources.configMaps, ref, {
    type: "apply",
    body: { data: { a: "1" } },
    fieldManager: "test",
  });
  assert.deepEqual(applied.data, { j: "1", s: "1", a: "1" });
  await assert.rejects(
    client.delete(resources.configMaps, ref, { preconditions: { resourceVersion: second.metadata.resourceVersion } }),
    { code: "conflict" },
  );
  await client.delete(resources.configMaps, ref, { preconditions: { uid: made.metadata.uid } });
  await assert.rejects(client.get(resources.configMaps, ref), { code: "not-found" });
});

test("client: lists in pages and watches from the list", async () => {
  for (let n = 0; n < 7; n += 1) await client.create(resources.configMaps, config(`p${n}`));
  const { items, resourceVersion } = await client.listAll(resources.configMaps, {
    namespace,
    labelSelector: "t=1",
    limit: 3,
  });
  assert.equal(items.length, 7);
  const events: string[] = [];
  const changes = (async () => {
    for await (const event of client.watch(resources.configMaps, { namespace, resourceVersion, signal })) {
      if (event.type === "BOOKMARK") continue;
      events.push(`${event.type} ${event.object.metadata.name}`);
      if (events.length === 3) return;
    }
  })();
  const w = await client.create(resources.configMaps, config("w"));
  await client.replace(resources.configMaps, { ...w, data: { y: "1" } });
  await client.delete(resources.configMaps, { name: "w", namespace });
  await changes;
  assert.deepEqual(events, ["ADDED w", "MODIFIED w", "DELETED w"]);
  await client.deleteCollection(resources.configMaps, { namespace, labelSelector: "t=1" });
  assert.equal((await client.listAll(resources.configMaps, { namespace, labelSelector: "t=1" })).items.length, 0);
});

test("client: of metadata alone, lists and watches have names, labels and versions, and nothing else", async () => {
  await client.create(resources.configMaps, config("meta", { large: "x".repeat(1000) }));
  const selected = { namespace, fieldSelector: "metadata.name=meta", metadataOnly: true, signal };
  const { items, resourceVersion } = await client.list(resources.configMaps, selected);
  assert.deepEqual(
    items.map(({ metadata, data }) => [metadata.name, metadata.labels, data]),
    [["meta", { t: "1" }, undefined]],
  );
  const change = { type: "merge", body: { metadata: { labels: { t: "2" } } } } as const;
  await client.patch(resources.configMaps, { name: "meta", namespace }, change);
  for await (const event of client.watch(resources.configMaps, { ...selected, resourceVersion })) {
    if (event.type === "BOOKMARK") continue;
    assert.deepEqual(
      [event.type, event.object.metadata.labels, event.object.data],
      ["MODIFIED", { t: "2" }, undefined],
    );
    break;
  }
  const informer = createInformer(client, resources.configMaps, { ...selected, clock: systemClock });
  const stop = new AbortController();
  const running = informer.run({ signal: stop.signal });
  await informer.synced;
  assert.deepEqual(
    informer.store.list().map(({ metadata, data }) => [metadata.name, data]),
    [["meta", undefined]],
  );
  stop.abort();
  await running;
  await client.delete(resources.configMaps, { name: "meta", namespace });
});

test("client: Coil's CRDs are accepted, validate, default and prune", async () => {
  for (const crd of coilCrds) {
    await client.patch(
      resources.customResourceDefinitions,
      { name: crd.metadata.name },
      { type: "apply", body: crd, fieldManager: "test", force: true },
    );
  }
  const kinds = new Set<string>(coilCrds.map((crd) => crd.metadata.name));
  await until("Coil's CRDs are established", async () => {
    const crds = await client.listAll(resources.customResourceDefinitions);
    const established = crds.items.filter(
      ({ metadata, status }) =>
        kinds.has(metadata.name) &&
        status?.conditions?.some((one) => one.type === "Established" && one.status === "True"),
    );
    return established.length === kinds.size;
  });
  const subnets = [{ ipv4: "10.2.0.0/24" }];
  const pool = await client.create(coilResources.addressPools, { metadata: { name: namespace }, spec: { subnets } });
  assert.equal(pool.spec?.blockSizeBits, 5);
  await assert.rejects(
    client.create(coilResources.addressPools, { metadata: { name: "bad" }, spec: { subnets: [] } }),
    (error) => isKubeError(error, "invalid") && /subnets/.test(error.message),
  );
  const request = await client.create(coilResources.blockRequests, {
    metadata: { name: namespace },
    spec: { nodeName: "n", poolName: "p" },
  });
  const done = await client.replaceStatus(coilResources.blockRequests, {
    ...request,
    status: { conditions: [{ type: "Complete", status: "True" }], addressBlockName: "p-0" },
  });
  assert.equal(done.status?.addressBlockName, "p-0");
  const egress = await client.create(coilResources.egresses, {
    metadata: { name: "nat", namespace },
    spec: { destinations: ["10.0.0.0/8"] },
  });
  assert.deepEqual([egress.spec?.replicas, egress.spec?.sessionAffinity], [1, "ClientIP"]);
  await client.delete(coilResources.egresses, { name: "nat", namespace });
  await client.delete(coilResources.blockRequests, { name: namespace });
  await client.delete(coilResources.addressPools, { name: namespace });
});

test("informer: follows the server through dropped and expired watches", async () => {
  const stop = new AbortController();
  const informer = createInformer(client, resources.configMaps, {
    namespace,
    labelSelector: "t=1",
    pageSize: 2,
    clock: systemClock,
  });
  const seen = new Map<string, string>();
  const deleted: string[] = [];
  informer.addHandler({
    onAdd: (object) => void seen.set(object.metadata.name, object.data?.["x"] ?? ""),
    onUpdate: (_before, object) => void seen.set(object.metadata.name, object.data?.["x"] ?? ""),
    onDelete: (object) => {
      seen.delete(object.metadata.name);
      deleted.push(object.metadata.name);
    },
  });
  const running = informer.run({ signal: stop.signal });
  await informer.synced;
  let cut = 0;
  const ofConfigMaps = { resource: "configmaps", namespace };
  const wanted = new Map<string, string>();
  for (let n = 0; n < 20; n += 1) {
    const made = await client.create(resources.configMaps, config(`i${n}`, { x: "new" }));
    wanted.set(`i${n}`, "new");
    // A real server has no such switch; there the informer only follows.
    if (server !== undefined && n % 5 === 2) {
      const { faults } = server;
      await until("the informer watches again", () => {
        const hit = n === 12 ? faults.expireWatches(ofConfigMaps) : faults.dropWatches(ofConfigMaps);
        cut += hit;
        return hit > 0;
      });
    }
    if (n % 3 !== 2) continue;
    await client.delete(resources.configMaps, { name: `i${n - 1}`, namespace });
    wanted.delete(`i${n - 1}`);
    await client.replace(resources.configMaps, { ...made, data: { x: "changed" } });
    wanted.set(`i${n}`, "changed");
  }
  assert.ok(server === undefined || cut >= 4, `only ${cut} watches were cut`);
  await until(
    "the informer has what the server has",
    () => seen.size === 14 && [...wanted].every(([name, x]) => seen.get(name) === x),
  );
  assert.deepEqual(Object.fromEntries(seen), Object.fromEntries(wanted));
  assert.equal(informer.store.size, 14);
  assert.equal(new Set(deleted).size, deleted.length, `deletions were told twice: ${deleted.join(" ")}`);
  stop.abort();
  await running;
  await client.deleteCollection(resources.configMaps, { namespace, labelSelector: "t=1" });
});

test("lease: is got, renewed and given up", async () => {
  const options = {
    namespace,
    name: "leader",
    identity: "me",
    leaseDurationMs: 3000,
    renewDeadlineMs: 2000,
    retryPeriodMs: 100,
    clock: systemClock,
  };
  const why = await runAsLeader(client, options, {
    signal,
    lead: async () => {
      const first = await client.get(resources.leases, { name: "leader", namespace });
      assert.equal(first.spec?.holderIdentity, "me");
      await until("the lease is renewed", async () => {
        const now = await client.get(resources.leases, { name: "leader", namespace });
        return now.spec?.renewTime !== first.spec?.renewTime;
      });
    },
  });
  assert.equal(why, "work-done");
  assert.equal((await client.get(resources.leases, { name: "leader", namespace })).spec?.holderIdentity ?? "", "");
});
