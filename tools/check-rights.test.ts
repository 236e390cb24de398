import assert from "node:assert/strict";
import { test } from "node:test";
import { type Access, compareRights, type RightsObject, staleReasons } from "./check-rights.ts";

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
