import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { nullLogger } from "#base/log";
import { createRegistry } from "#base/metrics";
import { resources } from "#kube/client";
import { KubeClients, rateLimitOf } from "./kube-clients.ts";

test("KubeClients: a Lease is renewed beside any number of reviews that wait for an answer", async (t) => {
  const reviews: ServerResponse[] = [];
  const server = createServer((request, response) => {
    if (request.method === "POST") reviews.push(response);
    else response.setHeader("content-type", "application/json").end('{"kind":"Lease","metadata":{"name":"x"}}');
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const folder = mkdtempSync(join(tmpdir(), "isthmus-kube-clients-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const kubeconfig = join(folder, "kubeconfig");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  writeFileSync(
    kubeconfig,
    JSON.stringify({
      ...{ apiVersion: "v1", kind: "Config", "current-context": "x" },
      clusters: [{ name: "x", cluster: { server: url } }],
      users: [{ name: "x", user: { token: "x" } }],
      contexts: [{ name: "x", context: { cluster: "x", user: "x" } }],
    }),
  );
  const registry = createRegistry();
  const rateLimit = rateLimitOf({ kubeconfigQps: 5, kubeconfigBurst: 0 });
  assert.deepEqual(rateLimit, { qps: 5, burst: 10 });
  const needs = { reviews: true, leases: true, nodes: false };
  await using clients = await KubeClients.open(
    needs,
    { kubeconfig, apiServer: [], rateLimit },
    { registry, log: nullLogger },
  );
  const stop = new AbortController();
  const asked = Array.from({ length: 100 }, () =>
    clients.reviews?.request({ method: "POST", path: "/reviews", body: {} }, { signal: stop.signal }),
  );
  const ended = Promise.allSettled(asked);
  while (reviews.length < 32) await new Promise((resolve) => setTimeout(resolve, 5));
  const lease = await clients.leases?.get(resources.leases, { namespace: "a", name: "x" }, { timeoutMs: 2000 });
  assert.equal(lease?.metadata.name, "x");
  stop.abort();
  await ended;
  assert.match(await registry.metrics(), /rest_client_requests_total\{code="200",method="GET"/);
});

test("KubeClients: there is no client where nothing needs it, and no limit for 0", async () => {
  const needs = { reviews: false, leases: false, nodes: false };
  await using clients = await KubeClients.open(
    needs,
    { kubeconfig: "/none", apiServer: [], rateLimit: undefined },
    { registry: createRegistry(), log: nullLogger },
  );
  assert.deepEqual([clients.reviews, clients.leases], [undefined, undefined]);
  assert.equal(rateLimitOf({ kubeconfigQps: 0, kubeconfigBurst: 9 }), undefined);
  assert.deepEqual(rateLimitOf({ kubeconfigQps: 0.1, kubeconfigBurst: 0 }), { qps: 0.1, burst: 1 });
});
