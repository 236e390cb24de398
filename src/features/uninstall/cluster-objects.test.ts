import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import type { KubeObject } from "#kube/client";
import { type InstalledObject, RIGHTS, TYPES, WEBHOOKS, WORKLOADS } from "./cluster-objects.ts";
import { type ClusterFacts, type ClusterRemoval, planCluster } from "./cluster-plan.ts";

const root = join(import.meta.dirname, "../../..");
/** Examples, files of an API server, static Pods that a kubelet runs, and what every cluster has. */
const NOT_INSTALLED = /^(EgressSelectorConfiguration|Pod|EndpointSlice|Namespace|AddressPool|NicPolicy|Egress) /;

const textOf = ({ type, namespace, name }: InstalledObject): string =>
  `${type.kind} ${namespace === undefined ? name : `${namespace}/${name}`}`;

test("the objects of an installation: every object of deploy/ is removed with the cluster, by name", () => {
  const known = new Set([...WEBHOOKS, ...WORKLOADS, ...RIGHTS, ...TYPES].map(textOf));
  const files = globSync("deploy/**/*.yaml", { cwd: root }).filter((file) => !/^deploy\/(lab|uplink)\//.test(file));
  const missing = files.flatMap((file) =>
    parseAllDocuments(readFileSync(join(root, file), "utf8")).flatMap((document) => {
      const object = document.toJS() as (KubeObject & { readonly kind?: string }) | null;
      const { kind, metadata: { namespace, name } = {} } = (object ?? {}) as {
        kind?: string;
        metadata?: { namespace?: string; name?: string };
      };
      if (kind === undefined || name === undefined) return [];
      const text = `${kind} ${namespace === undefined ? name : `${namespace}/${name}`}`;
      return known.has(text) || NOT_INSTALLED.test(text) ? [] : [`${file}: ${text}`];
    }),
  );
  assert.deepEqual(missing, []);
  assert.ok(files.length > 20, String(files.length));
});

const removal = (what: string): ClusterRemoval => ({
  type: { group: "", version: "v1", kind: what, plural: what, namespaced: false },
  ref: { name: what },
  what,
  why: "",
  finalizer: undefined,
});
const facts: ClusterFacts = {
  webhooks: [removal("webhook")],
  egresses: [removal("egress")],
  workloads: [removal("workload")],
  rights: [removal("right")],
  addresses: [removal("pool")],
  types: [removal("type")],
  claims: [],
};

test("planCluster: webhooks first, API types last; with keepPools these and the pools stay", () => {
  const names = (keepPools: boolean): readonly string[] =>
    planCluster(facts, { keepPools }).removals.map(({ what }) => what);
  assert.deepEqual(names(false), ["webhook", "egress", "workload", "right", "pool", "type"]);
  assert.deepEqual(names(true), ["webhook", "egress", "workload", "right"]);
  assert.deepEqual(planCluster(facts, { keepPools: true }).kept, [
    "pool pool: --keep-pools",
    "type type: --keep-pools",
  ]);
});

test("planCluster: NICs of pods refuse it, because only nic-controller gives their ports back", () => {
  assert.deepEqual(planCluster(facts, { keepPools: false }).refused, []);
  const [refused = ""] = planCluster({ ...facts, claims: ["web/a"] }, { keepPools: true }).refused;
  assert.match(refused, /1 NICs of VPCs \(web\/a\)/);
});
