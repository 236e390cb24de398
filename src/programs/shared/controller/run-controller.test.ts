import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Deferred, untilAborted } from "#base/async";
import { systemClock } from "#base/clock";
import { parseFlags } from "#base/config";
import { nullLogger } from "#base/log";
import { KubeClient, loadKubeConfig, resources, resourceType, type Stored } from "#kube/client";
import { startApiServer } from "#lab/api-server";
import { endpointFlags, kubeFlags, logFlags } from "../daemon/index.ts";
import { recordFlag } from "../pass-record/index.ts";
import { type LeadingController, runController } from "./index.ts";

interface Widget {
  apiVersion: "example.com/v1";
  kind: "Widget";
  metadata: { name: string };
  spec: { size: number };
  status?: { doubled: number };
}
const widgets = resourceType<Stored<Widget>>({
  group: "example.com",
  version: "v1",
  kind: "Widget",
  plural: "widgets",
  namespaced: false,
});
const schema = { type: "object", "x-kubernetes-preserve-unknown-fields": true };
const crd = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "widgets.example.com" },
  spec: {
    group: "example.com",
    names: { plural: "widgets", singular: "widget", kind: "Widget", listKind: "WidgetList" },
    scope: "Cluster",
    versions: [
      { name: "v1", served: true, storage: true, subresources: { status: {} }, schema: { openAPIV3Schema: schema } },
    ],
  },
} as const;
const flags = { ...endpointFlags("127.0.0.1:0", "127.0.0.1:0"), ...recordFlag, ...kubeFlags, ...logFlags };

/** The whole controller program of a new custom resource. */
function widgetController(values: ReturnType<typeof parseFlags<typeof flags>>["values"], signal: AbortSignal) {
  const setUp = ({ api, watch, control }: LeadingController): void => {
    const all = watch(widgets);
    control("widget", {
      on: [all],
      reconcile: async (name, options) => {
        const widget = all.store.getByKey(name);
        if (widget === undefined || widget.status?.doubled === 2 * widget.spec.size) return;
        await api.replaceStatus(widgets, { ...widget, status: { doubled: 2 * widget.spec.size } }, options);
      },
    });
  };
  return runController({ name: "widgets", values, signal }, [{ lease: "widget-leader", setUp }]);
}

/** An API server, a client of it, and a folder with its kubeconfig. Disposing removes all. */
async function openBed() {
  await using undo = new AsyncDisposableStack();
  const server = undo.use(
    await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, log: nullLogger, clock: systemClock }),
  );
  const folder = mkdtempSync(join(tmpdir(), "isthmus-controller-"));
  undo.defer(() => rmSync(folder, { recursive: true }));
  const kubeconfig = join(folder, "kubeconfig");
  writeFileSync(kubeconfig, server.kubeconfig());
  const config = await loadKubeConfig({ path: kubeconfig, clock: systemClock });
  const api = undo.use(new KubeClient(config, { clock: systemClock }));
  const made = undo.move();
  return { server, api, folder, kubeconfig, [Symbol.asyncDispose]: () => made.disposeAsync() };
}

test("runController: a controller of a new resource leads, reconciles existing and new objects, and gives its Lease up", async (t) => {
  await using bed = await openBed();
  const { server, api, kubeconfig } = bed;
  await api.create(resources.customResourceDefinitions, crd as never);
  await server.settled();
  await api.create(widgets, { metadata: { name: "before" }, spec: { size: 4 } });

  const stop = new AbortController();
  const { values } = parseFlags(flags, [`--kubeconfig=${kubeconfig}`, "--zap-log-level=error"]);
  const ended = widgetController(values, stop.signal);
  const doubled = async (name: string, wanted: number): Promise<void> => {
    const deadline = AbortSignal.any([AbortSignal.timeout(10_000), t.signal]);
    for await (const event of api.watch(widgets, { fieldSelector: `metadata.name=${name}`, signal: deadline })) {
      if (event.type !== "BOOKMARK" && event.object.status?.doubled === wanted) return;
    }
  };
  await doubled("before", 8);
  await api.create(widgets, { metadata: { name: "after" }, spec: { size: 5 } });
  await doubled("after", 10);
  stop.abort();
  assert.equal(await ended, 0);
  const lease = await api.get(resources.leases, { namespace: "kube-system", name: "widget-leader" });
  assert.equal(lease.spec?.holderIdentity ?? "", "");
});

for (const end of ["asked for", "of a Lease that another replica has taken"] as const) {
  test(`runController: an end ${end} blames no pass that was under way`, async () => {
    await using bed = await openBed();
    const { api, folder, kubeconfig } = bed;
    const stop = new AbortController();
    const record = join(folder, "record");
    const { values } = parseFlags(flags, [
      ...[`--kubeconfig=${kubeconfig}`, "--zap-log-level=fatal", `--record-dir=${record}`],
    ]);
    const begun = new Deferred();
    const setUp = ({ control }: LeadingController): void => {
      const reconcile = async (_key: string, { signal }: { readonly signal: AbortSignal }): Promise<void> => {
        begun.resolve();
        await untilAborted(signal);
      };
      control("slow", { reconcile }).enqueue("one");
    };
    const leaseTimes = { leaseDurationMs: 1500, renewDeadlineMs: 1000, retryPeriodMs: 200 };
    const ended = runController({ name: "slow", values, leaseTimes, signal: stop.signal }, [
      { lease: "slow-leader", setUp },
    ]);
    await begun.promise;
    assert.match(readFileSync(join(record, "under-way"), "utf8"), /"slow"/);
    if (end === "asked for") stop.abort();
    else {
      const seeking = { namespace: "kube-system", name: "slow-leader" };
      const spec = { holderIdentity: "other", leaseDurationSeconds: 3600, renewTime: "2100-01-01T00:00:00.000000Z" };
      await api.patch(resources.leases, seeking, { type: "merge", body: { spec } });
    }
    assert.equal(await ended, end === "asked for" ? 0 : 1);
    assert.equal(readFileSync(join(record, "under-way"), "utf8"), "");
  });
}
