import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { type KubeApi, KubeError, type KubeObject } from "#kube/client";
import { type InstalledObject, RIGHTS, TYPES, WEBHOOKS, WORKLOADS } from "./cluster-objects.ts";
import { type ClusterFacts, type ClusterRemoval, planCluster, readCluster } from "./cluster-plan.ts";

const root = join(import.meta.dirname, "../../..");
/** Examples, files of an API server, static Pods that a kubelet runs, and what every cluster has. */
const NOT_INSTALLED = /^(EgressSelectorConfiguration|Pod|EndpointSlice|Namespace|AddressPool|NicPolicy|Egress) /;

const textOf = ({ type, namespace, name }: InstalledObject): string =>
  `${type.kind} ${namespace === undefined ? name : `${namespace}/${name}`}`;

test("the objects of an installation: every object of deploy/ is removed with the cluster, by name", () => {
  const known = new Set([...WEBHOOKS, ...WORKLOADS, ...RIGHTS, ...TYPES].map(textOf));
  const files = globSync("deploy/**/*.yaml", { cwd: root }).filter(
    (file) => !/^deploy\/(lab|uplink|chart\/templates)\//.test(file),
  );
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
  isAfterPrograms: false,
  isAfterRouters: false,
});
const facts: ClusterFacts = {
  webhooks: [removal("webhook")],
  egresses: [removal("egress")],
  workloads: [removal("workload")],
  rights: [removal("right")],
  addresses: [removal("pool")],
  types: [removal("type")],
  claims: [],
  clients: [],
  coils: [],
  foreign: [],
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

test("readCluster: an object with a common name is ours only with our label; without it, it is named and stays", async () => {
  const labels: Readonly<Record<string, string>> = { "service-proxy": "isthmus", "proxy-agent": "somebody" };
  const api = {
    get: async (type: { readonly kind: string }, { name }: { readonly name: string }) => {
      const partOf = labels[name];
      if (partOf === undefined || type.kind !== "DaemonSet") throw new KubeError("not-found", "404");
      return { metadata: { name, labels: { "app.kubernetes.io/part-of": partOf } } };
    },
    listAll: async () => ({ items: [] }),
  };
  const found = await readCluster(api as unknown as KubeApi, { signal: new AbortController().signal });
  assert.deepEqual(
    found.workloads.map(({ what }) => what),
    ["delete DaemonSet kube-system/service-proxy"],
  );
  assert.deepEqual(planCluster(found, { keepPools: false }).kept, [
    "DaemonSet kube-system/proxy-agent: it does not have the label app.kubernetes.io/part-of=isthmus",
  ]);
});

test("planCluster: NICs of pods refuse it, because only nic-controller gives their ports back", () => {
  assert.deepEqual(planCluster(facts, { keepPools: false }).refused, []);
  const [refused = ""] = planCluster({ ...facts, claims: ["web/a"] }, { keepPools: true }).refused;
  assert.match(refused, /1 NICs of VPCs \(web\/a\)/);
});

test("readCluster, planCluster: a cluster of Coil itself is refused, with the image that tells it; images of others are none of it", async () => {
  const images: Readonly<Record<string, string>> = {
    coild: "ghcr.io/cybozu-go/coil:2.15.0",
    "coil-router": "registry.example/isthmus-coil:0.1.0",
  };
  const api = {
    get: async (type: { readonly kind: string }, { name }: { readonly name: string }) => {
      const image = images[name];
      if (image === undefined || type.kind !== "DaemonSet") throw new KubeError("not-found", "404");
      return { metadata: { name }, spec: { template: { spec: { containers: [{ name, image }] } } } };
    },
    listAll: async () => ({ items: [] }),
  };
  const found = await readCluster(api as unknown as KubeApi, { signal: new AbortController().signal });
  const [refused = "", ...more] = planCluster(found, { keepPools: true }).refused;
  assert.match(refused, /^Coil itself runs here: DaemonSet kube-system\/coild \(ghcr\.io\/cybozu-go\/coil:2\.15\.0\);/);
  assert.deepEqual(more, []);
});

test("readCluster, planCluster: pods that coild's end leaves without a way to end are told before; routers, host-network pods and others are none", async () => {
  const pod = (name: string, ip: string, labels?: Record<string, string>) => ({
    metadata: { namespace: "web", name, ...(labels === undefined ? {} : { labels }) },
    status: { podIPs: [{ ip }] },
  });
  const router = {
    "app.kubernetes.io/component": "egress",
    "app.kubernetes.io/instance": "nat",
    "app.kubernetes.io/name": "coil",
  };
  const items: Readonly<Record<string, readonly object[]>> = {
    AddressBlock: [{ metadata: { name: "default-0" }, ipv4: "10.100.0.0/27", ipv6: "fd00::/123" }],
    Pod: [
      pod("a", "10.100.0.3"),
      pod("six", "fd00::5"),
      pod("nat", "10.100.0.4", router),
      pod("host", "192.0.2.1"),
      { metadata: { namespace: "web", name: "new" } },
    ],
  };
  const coild = { metadata: { name: "coild", labels: { "app.kubernetes.io/part-of": "isthmus" } } };
  const api = {
    get: async (type: { readonly kind: string }, { name }: { readonly name: string }) => {
      if (type.kind === "DaemonSet" && name === "coild") return coild;
      throw new KubeError("not-found", "404");
    },
    listAll: async ({ kind }: { readonly kind: string }) => ({ items: items[kind] ?? [] }),
  };
  const found = await readCluster(api as unknown as KubeApi, { signal: new AbortController().signal });
  assert.deepEqual(found.clients, ["web/a", "web/six"]);
  for (const keepPools of [false, true]) {
    const [left = ""] = planCluster({ ...found, workloads: [] }, { keepPools }).unfinished;
    assert.match(left, /^2 pods have addresses and links of coild \(web\/a, web\/six\): .* delete them before, or /);
  }
  assert.deepEqual(planCluster({ ...found, clients: [] }, { keepPools: false }).unfinished, []);
});
