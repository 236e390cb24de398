import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { poll } from "#base/async";
import { FakeClock, systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { type Draft, KubeClient, loadKubeConfig, type Pod, resources } from "#kube/client";
import { coilCrds, coilResources } from "#kube/coil";
import { createInformer } from "#kube/informer";
import { type SeedObject, startApiServer } from "#lab/api-server";
import { ClientCounts, COUNTED_POD_INDEXES, countedNamespace, countedPod } from "./client-counts.ts";

/** The counts over an embedded API server that has the namespaces `internet` and `tenant`. */
async function open(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-counts-"));
  const server = await startApiServer({
    listen: [{ host: "127.0.0.1", port: 0 }],
    log: nullLogger,
    clock: systemClock,
  });
  server.seed(coilCrds as unknown as readonly SeedObject[]);
  writeFileSync(join(folder, "kubeconfig"), server.kubeconfig({ server: server.urls[0] ?? "" }));
  const config = await loadKubeConfig({ path: join(folder, "kubeconfig"), clock: systemClock });
  const api = new KubeClient(config, { clock: systemClock });
  for (const name of ["internet", "tenant"]) await api.create(resources.namespaces, { metadata: { name } });
  const clock = new FakeClock();
  const changes: string[] = [];
  const egresses = createInformer(api, coilResources.egresses, { clock: systemClock });
  const pods = createInformer(api, resources.pods, {
    transform: countedPod,
    indexers: COUNTED_POD_INDEXES,
    clock: systemClock,
  });
  const namespaces = createInformer(api, resources.namespaces, { transform: countedNamespace, clock: systemClock });
  const counts = new ClientCounts({ egresses, pods, namespaces, onChange: (key) => void changes.push(key), clock });
  const controller = new AbortController();
  const { signal } = controller;
  const running = Promise.allSettled([egresses, pods, namespaces, counts].map((one) => one.run({ signal })));
  t.after(async () => {
    controller.abort();
    await clock.advance(0);
    await running;
    await api.close();
    await server[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  });
  const makePod = (name: string, names: string | undefined, labels: Record<string, string> = {}, spec: object = {}) =>
    api.create(resources.pods, {
      metadata: {
        name,
        namespace: "tenant",
        labels,
        annotations: names === undefined ? {} : { "egress.coil.cybozu.com/internet": names },
      },
      spec: { containers: [{ name: "c", image: "none" }], ...spec },
    } as Draft<Pod>);
  const makeEgress = (name: string, spec: object) =>
    api.create(coilResources.egresses, {
      metadata: { name, namespace: "internet" },
      spec: { destinations: ["0.0.0.0/0"], ...spec },
    } as never);
  const until = async (key: string, clients: number, refused: number): Promise<void> => {
    const found = await poll(
      async () => {
        await clock.advance(2000);
        return counts.of(key);
      },
      {
        until: (one) => one?.clients === clients && one.refused === refused,
        everyMs: 5,
        deadlineMs: 5000,
        clock: systemClock,
      },
    );
    assert.deepEqual(found, { clients, refused }, key);
  };
  return { api, makePod, makeEgress, until, changes };
}

test("ClientCounts: counts pods that use an Egress and those that may not, through changes of pods, Namespaces and Egresses", async (t) => {
  const { api, makePod, makeEgress, until, changes } = await open(t);
  await makeEgress("nat", { allowedNamespaces: { selector: { matchLabels: { tier: "gold" } } } });
  await makeEgress("all", { clients: [{ namespaceSelector: {}, podSelector: { matchLabels: { app: "web" } } }] });
  await makePod("a", "nat,gone");
  await makePod("b", "nat", { app: "web" });
  await makePod("plain", undefined);
  await makePod("host", "nat", {}, { hostNetwork: true });
  await until("internet/nat", 0, 2);
  await until("internet/all", 0, 1);
  const edit = (metadata: object) =>
    api.patch(resources.namespaces, { name: "tenant" }, { type: "merge", body: { metadata } });
  await edit({ labels: { tier: "gold" }, annotations: { "isthmus.dev/egress-clients-of": "internet/all" } });
  await until("internet/nat", 2, 0);
  await until("internet/all", 1, 0);
  await api.delete(resources.pods, { namespace: "tenant", name: "a" }, { gracePeriodSeconds: 0 });
  await until("internet/nat", 1, 0);
  const body = { spec: { allowedNamespaces: { names: [], selector: null } } };
  await api.patch(coilResources.egresses, { namespace: "internet", name: "nat" }, { type: "merge", body });
  await until("internet/nat", 0, 1);
  await api.delete(coilResources.egresses, { namespace: "internet", name: "all" });
  await until("internet/all", 0, 0);
  assert.deepEqual([...new Set(changes)].sort(), ["internet/all", "internet/nat"]);
});
