import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import {
  type Access,
  compareRights,
  manifestsWithRights,
  type RightsObject,
  staleReasons,
  unnamedRights,
} from "./check-rights.ts";
import { joinDocuments, readChart, readValues, renderChart } from "./manifests/index.ts";

const root = join(import.meta.dirname, "..");
const ROLE: RightsObject = {
  kind: "ClusterRole",
  metadata: { name: "coild" },
  rules: [{ verbs: ["get", "list"], apiGroups: [""], resources: ["pods", "pods/status"] }],
};
const BINDING: RightsObject = {
  kind: "ClusterRoleBinding",
  metadata: { name: "coild" },
  roleRef: { kind: "ClusterRole", name: "coild" },
  subjects: [{ kind: "ServiceAccount", name: "coild" }],
};
const files = new Map([["rbac.yaml", [ROLE, BINDING]]]);

function access(verb: string, resource: string, more: Partial<Access> = {}): Access {
  return { program: "coild", account: "kube-system:coild", verb, group: "", resource, allowed: true, ...more };
}
const ALL = ["get", "list"].flatMap((verb) => ["pods", "pods/status"].map((resource) => access(verb, resource)));

test("compareRights: every right is used, and none is missing", () => {
  assert.deepEqual(compareRights(files, ALL), []);
});

test("compareRights: names each right that no test has used, of one account and of a subresource alone", () => {
  const others = access("list", "pods/status", { account: "kube-system:coil-router" });
  assert.deepEqual(compareRights(files, [...ALL.slice(0, 3), others]), [
    "rbac.yaml: coild may list pods/status, which no test has used",
  ]);
});

test("compareRights: a refused request is a missing right where the account had all of its manifest, and none where a test had taken some", () => {
  const refused = access("watch", "nodes", { allowed: false, had: ROLE.rules ?? [] });
  assert.deepEqual(compareRights(files, [...ALL, refused]), [
    "rbac.yaml: coild lacks watch nodes, which it has asked for",
  ]);
  const less = { ...refused, had: [{ verbs: ["get"], apiGroups: [""], resources: ["pods"] }] };
  assert.deepEqual(compareRights(files, [...ALL, less]), []);
});

test("compareRights: what a person asked for with a program's credentials does not count", () => {
  const audit = ALL.map((one) => ({ ...one, program: "audit" }));
  const refused = access("watch", "nodes", { program: "audit", allowed: false, had: ROLE.rules ?? [] });
  assert.equal(compareRights(files, [...audit, refused]).length, 4);
});

test("compareRights: a binding whose subjects a controller adds is of the accounts of its name", () => {
  const { subjects: _none, ...binding } = BINDING;
  const open = new Map([["rbac.yaml", [ROLE, binding]]]);
  const used = ALL.map((one) => ({ ...one, account: "tenant:coild" }));
  assert.deepEqual(compareRights(open, used), []);
  assert.equal(compareRights(open, []).length, 4);
});

test("compareRights: manifests without rights are a fault, and no success; reasons for rights that nothing gives are named", () => {
  const nothing = ["no manifest gives a right to an account: there is nothing to compare"];
  assert.deepEqual(compareRights(new Map(), ALL), nothing);
  assert.deepEqual(compareRights(new Map([["rbac.yaml", [ROLE]]]), ALL), nothing);
  assert.deepEqual(staleReasons(files, ["coild get pods", "coild get nodes"]), [
    'KEPT has "coild get nodes", which no manifest gives',
  ]);
});

/** An account with rights on Leases: on those of `names`, or on all. */
function leases(...names: readonly string[]): RightsObject[] {
  const rule = { verbs: ["get", "update"], apiGroups: ["coordination.k8s.io"], resources: ["leases"] };
  const named = names.length === 0 ? rule : { ...rule, resourceNames: names };
  return [{ ...ROLE, rules: [named] }, BINDING];
}
const lease = (verb: string, name: string): Access => access(verb, "leases", { group: "coordination.k8s.io", name });

test("compareRights: a right on the objects of some names is used by each name, and one on those of every name is too wide where only the suite's own were asked for", () => {
  const both = ["get", "update"].map((verb) => lease(verb, "coild"));
  assert.deepEqual(compareRights(new Map([["rbac.yaml", leases("coild")]]), both), []);
  assert.deepEqual(compareRights(new Map([["rbac.yaml", leases("coild", "other")]]), both), [
    "rbac.yaml: coild may get leases.coordination.k8s.io other, which no test has used",
    "rbac.yaml: coild may update leases.coordination.k8s.io other, which no test has used",
  ]);
  // A name that another role has.
  const named = { kind: "Role", metadata: { name: "r" }, rules: leases("coild")[0]?.rules ?? [] };
  const wide = new Map([["rbac.yaml", [...leases(), named]]]);
  assert.deepEqual(compareRights(wide, both), [
    "rbac.yaml: coild may get leases.coordination.k8s.io of every name, and asks for coild alone: name it",
    "rbac.yaml: coild may update leases.coordination.k8s.io of every name, and asks for coild alone: name it",
  ]);
  const another = ["get", "update"].flatMap((verb) => [lease(verb, "coild"), lease(verb, "node-1")]);
  assert.deepEqual(compareRights(wide, another), []);
});

test("unnamedRights: names verbs of one object on all locks, credentials and rights, a star too, and no right to create or list", () => {
  const of = (rule: object): string[] => unnamedRights([{ ...ROLE, rules: [rule] }]);
  assert.deepEqual(of({ verbs: ["get", "create"], apiGroups: ["coordination.k8s.io"], resources: ["leases"] }), [
    "ClusterRole coild may get leases.coordination.k8s.io of every name",
  ]);
  assert.deepEqual(of({ verbs: ["*"], apiGroups: [""], resources: ["secrets", "pods"] }), [
    "ClusterRole coild may * secrets of every name",
  ]);
  assert.deepEqual(of({ verbs: ["update"], apiGroups: ["*"], resources: ["*"] }), [
    "ClusterRole coild may update *.* of every name",
  ]);
  assert.deepEqual(of({ verbs: ["list", "watch", "create"], apiGroups: [""], resources: ["secrets"] }), []);
  assert.deepEqual(of({ verbs: ["get"], apiGroups: [""], resources: ["secrets"], resourceNames: ["x"] }), []);
});

test("deploy and the chart: no role has verbs of one object on every Lease, Secret, ConfigMap, role or webhook configuration", () => {
  const files = manifestsWithRights();
  assert.ok(files.size > 20);
  const chart = readChart(join(root, "deploy/chart"));
  const values = readValues(readFileSync(join(root, "deploy/variants/all.values.yaml"), "utf8"), "all");
  const rendered = joinDocuments(renderChart(chart, values).values());
  const all = new Map([...files, ["the chart", parseAllDocuments(rendered).map((one) => one.toJS() as RightsObject)]]);
  for (const [file, objects] of all) assert.deepEqual(unnamedRights(objects), [], file);
  // Each election has its own Lease alone.
  const named = [...all.values()]
    .flat()
    .flatMap(({ rules = [] }) =>
      rules.filter(({ resources }) => resources?.includes("leases")).flatMap(({ resourceNames = [] }) => resourceNames),
    );
  assert.deepEqual([...new Set(named)].sort(), ["coil-egress-leader", "coil-ipam-leader", "nic-controller-leader"]);
});
