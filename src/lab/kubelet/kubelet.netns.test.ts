import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { openKernel } from "#kernel/net";
import { type Draft, findObject, KubeClient, loadKubeConfig, type Pod, resources } from "#kube/client";
import { startApiServer } from "#lab/api-server";
import { Kubelet } from "./kubelet.ts";

const NODE = "node1";
const REF = { name: "drains", namespace: "default" };
/** Serves until two seconds after SIGTERM, and then says that it is not ready. Without its address it serves nothing. */
const PROGRAM = `
  if (process.env.ADDRESSES !== "127.0.0.1" || process.env.HOSTNAME !== "drains") process.exit(1);
  let status = 200;
  require("node:http").createServer((q, r) => r.writeHead(q.url === "/readyz" ? status : 404).end()).listen(8081);
  process.on("SIGTERM", () => { status = 503; setTimeout(() => process.exit(0), 2000); });`;

test("Kubelet: a pod has its addresses in its environment, and its probes count while it ends; one with a RuntimeClass waits", async (t) => {
  const kernel = openKernel();
  const folder = mkdtempSync(join(tmpdir(), "isthmus-kubelet-"));
  const server = await startApiServer({ listen: { host: "127.0.0.1", port: 0 }, log: nullLogger, clock: systemClock });
  writeFileSync(join(folder, "kubeconfig"), server.kubeconfig());
  const config = await loadKubeConfig({ path: join(folder, "kubeconfig"), clock: systemClock });
  const api = new KubeClient(config, { clock: systemClock });
  const netnsPrefix = `isthmus-kubelet-${process.pid}-`;
  const kubelet = new Kubelet(
    // The pod's loopback interface is its network.
    {
      api,
      kernel,
      cni: async ({ command }) => (command === "ADD" ? { ips: [{ address: "127.0.0.1/32" }] } : undefined),
      log: nullLogger,
      clock: systemClock,
    },
    { nodeName: NODE, nodeAddresses: ["172.31.0.11"], netnsPrefix },
  );
  const stop = new AbortController();
  const running = kubelet.run(stop);
  t.after(async () => {
    stop.abort();
    await running;
    await api.close();
    await server[Symbol.asyncDispose]();
    for (const name of kernel.listNetNs()) if (name.startsWith(netnsPrefix)) kernel.deleteNetNs(name);
    rmSync(folder, { recursive: true });
  });
  const container = {
    name: "main",
    image: "none",
    command: [process.execPath, "-e", PROGRAM],
    env: [{ name: "ADDRESSES", valueFrom: { fieldRef: { fieldPath: "status.podIPs" } } }],
    ports: [{ name: "health", containerPort: 8081 }],
    readinessProbe: { httpGet: { path: "/readyz", port: "health" }, periodSeconds: 1, failureThreshold: 1 },
  };
  const seen: string[] = [];
  /** Watches the pod until a state; each state is remembered once. */
  const until = async (wanted: string): Promise<void> => {
    while (seen.at(-1) !== wanted) {
      t.signal.throwIfAborted();
      const pod = await findObject(api, resources.pods, REF);
      const ready = pod?.status?.conditions?.find(({ type }) => type === "Ready")?.status === "True";
      const ends = pod?.metadata.deletionTimestamp !== undefined;
      const state = pod === undefined ? "gone" : `${ready ? "ready" : "not ready"}${ends ? ", ends" : ""}`;
      if (seen.at(-1) !== state) seen.push(state);
    }
  };
  const foreign = { name: "foreign", namespace: "default" };
  await api.create(resources.pods, {
    metadata: foreign,
    spec: { nodeName: NODE, runtimeClassName: "kata", containers: [{ name: "main", image: "none" }] },
  } as Draft<Pod>);
  await api.create(resources.pods, {
    metadata: REF,
    spec: { nodeName: NODE, terminationGracePeriodSeconds: 20, containers: [container] },
  } as Draft<Pod>);
  await until("ready");
  const { status } = await api.get(resources.pods, foreign);
  assert.deepEqual([status?.phase, status?.reason], ["Pending", "FailedCreatePodSandBox"]);
  assert.match(status?.message ?? "", /has no runtime of the pod's runtimeClassName/);
  await api.delete(resources.pods, REF);
  await until("gone");
  assert.deepEqual(seen.slice(-2), ["not ready, ends", "gone"], seen.join("; "));
});
