import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import type { ClusterRemoval } from "#features/uninstall";
import { type KubeApi, KubeError } from "#kube/client";
import { applyCluster } from "./apply-cluster.ts";

const removal = (name: string, isAfterPrograms: boolean, isAfterRouters = false): ClusterRemoval => ({
  type: { group: "", version: "v1", kind: "Thing", plural: "things", namespaced: false },
  ref: { name },
  what: `delete Thing ${name}`,
  why: "",
  finalizer: undefined,
  isAfterPrograms,
  isAfterRouters,
});
const REMOVALS = [removal("coild", false, true), removal("block", true), removal("type", true)];

const [ROUTERS, COILD] = ["egress", "coild"].map(
  (component) => `app.kubernetes.io/name=coil,app.kubernetes.io/component=${component}`,
) as [string, string];

/** An API server with these objects, and a pod of coild, or routers, for a number of looks at them. */
function server(looks: number, looksAtRouters = 0) {
  const there = new Set(["coild", "block", "type"]);
  const refused = new Set<string>();
  const seen: string[] = [];
  const left = { [COILD]: looks, [ROUTERS]: looksAtRouters };
  const api = {
    get: async (_type: unknown, { name }: { readonly name: string }) => {
      if (!there.has(name)) throw new KubeError("not-found", "404");
      return { metadata: { name, uid: name } };
    },
    delete: async (_type: unknown, { name }: { readonly name: string }) => {
      if (refused.has(name)) throw new KubeError("forbidden", "403");
      there.delete(name);
    },
    list: async (_type: unknown, { labelSelector }: { readonly labelSelector: string }) => {
      seen.push(labelSelector);
      const now = left[labelSelector] ?? 0;
      left[labelSelector] = now - 1;
      const pods =
        labelSelector === COILD ? [{ namespace: "kube-system", name: "coild-x" }] : ROUTER_PODS.slice(0, now);
      return { items: now <= 0 ? [] : pods.map((metadata) => ({ metadata })) };
    },
  };
  return { api: api as unknown as KubeApi, there, refused, seen };
}

const ROUTER_PODS = ["a", "b", "c", "d"].map((name) => ({ namespace: "internet", name }));

async function apply(api: KubeApi) {
  const done: string[] = [];
  const waits: string[] = [];
  const { signal } = new AbortController();
  const clock = new FakeClock();
  const result = applyCluster(
    { api, clock, onWait: (text) => void waits.push(text) },
    REMOVALS,
    ({ ref }) => void done.push(ref.name),
    { signal },
  );
  await clock.advance(200_000);
  return { failures: await result, done, waits };
}

test("applyCluster: blocks and types are removed once the pods of coild have ended", async () => {
  const { api, seen } = server(3);
  const waits = ["waiting for the end of 1 pods of coild (kube-system/coild-x)"];
  assert.deepEqual(await apply(api), { failures: [], done: ["coild", "block", "type"], waits });
  assert.deepEqual(seen, [ROUTERS, COILD, COILD, COILD, COILD]);
});

test("applyCluster: with a pod of coild that does not end, blocks and types stay, and it is named", async () => {
  const { api, there } = server(1000);
  const { failures, done } = await apply(api);
  assert.deepEqual(done, ["coild"]);
  assert.match(failures.join("\n"), /^Pod kube-system\/coild-x of coild has not ended after 100 s/);
  assert.deepEqual([...there], ["block", "type"]);
});

test("applyCluster: an object that the server refuses to delete is named, and the others are removed", async () => {
  const { api, refused } = server(0);
  refused.add("coild");
  const { failures, done } = await apply(api);
  assert.deepEqual(failures, ["delete Thing coild: 403"]);
  assert.deepEqual(done, ["block", "type"]);
});

test("applyCluster: coild is removed once no router of an Egress is left, and the wait is told whenever it changes", async () => {
  const { api, seen } = server(0, 4);
  const { failures, done, waits } = await apply(api);
  assert.deepEqual([failures, done], [[], ["coild", "block", "type"]]);
  assert.deepEqual(waits, [
    "waiting for the end of 4 pods of routers of Egresses (internet/a, internet/b, internet/c, ...)",
    "waiting for the end of 3 pods of routers of Egresses (internet/a, internet/b, internet/c)",
    "waiting for the end of 2 pods of routers of Egresses (internet/a, internet/b)",
    "waiting for the end of 1 pods of routers of Egresses (internet/a)",
  ]);
  assert.equal(seen.filter((one) => one === ROUTERS).length, 5);
});

test("applyCluster: with a router that does not end, coild stays with all that comes after it, and the router is named", async () => {
  const { api, there } = server(0, 1000);
  const { failures, done, waits } = await apply(api);
  assert.deepEqual([done, waits.length], [[], 1]);
  assert.match(
    failures.join("\n"),
    /^Pod internet\/a, a router of an Egress, has not ended after 100 s, .* without coild/,
  );
  assert.deepEqual([...there], ["coild", "block", "type"]);
});
