import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import type { ClusterRemoval } from "#features/uninstall";
import { type KubeApi, KubeError } from "#kube/client";
import { applyCluster } from "./apply-cluster.ts";

const removal = (name: string, isAfterPrograms: boolean): ClusterRemoval => ({
  type: { group: "", version: "v1", kind: "Thing", plural: "things", namespaced: false },
  ref: { name },
  what: `delete Thing ${name}`,
  why: "",
  finalizer: undefined,
  isAfterPrograms,
});
const REMOVALS = [removal("coild", false), removal("block", true), removal("type", true)];

/** An API server with these objects, and a pod of coild for a number of looks at it. */
function server(looks: number) {
  const there = new Set(["coild", "block", "type"]);
  const refused = new Set<string>();
  const seen: string[] = [];
  let left = looks;
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
      left -= 1;
      return { items: left < 0 ? [] : [{ metadata: { name: "coild-x" } }] };
    },
  };
  return { api: api as unknown as KubeApi, there, refused, seen };
}

async function apply(api: KubeApi) {
  const done: string[] = [];
  const { signal } = new AbortController();
  const clock = new FakeClock();
  const result = applyCluster({ api, clock }, REMOVALS, ({ ref }) => void done.push(ref.name), { signal });
  await clock.advance(200_000);
  return { failures: await result, done };
}

test("applyCluster: blocks and types are removed once the pods of coild have ended", async () => {
  const { api, seen } = server(3);
  assert.deepEqual(await apply(api), { failures: [], done: ["coild", "block", "type"] });
  assert.deepEqual(new Set(seen), new Set(["app.kubernetes.io/name=coil,app.kubernetes.io/component=coild"]));
  assert.equal(seen.length, 4);
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
