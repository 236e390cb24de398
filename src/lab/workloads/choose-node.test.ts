import assert from "node:assert/strict";
import { test } from "node:test";
import { chooseNode, type PlacedPod } from "./choose-node.ts";

const node = (name: string, spec: object = {}) => ({ metadata: { name, labels: { host: name } }, spec }) as never;
const NODES = [node("node10"), node("node2"), node("node1")];
const pod = (owner?: string, spec: object = {}) =>
  ({
    metadata: { ...(owner !== undefined && { ownerReferences: [{ uid: owner, controller: true }] }) },
    spec,
  }) as never;
const placed = (...entries: readonly (readonly [string, string])[]): PlacedPod[] =>
  entries.map(([at, owner]) => ({ node: at, owner }));

test("chooseNode: the node with the fewest pods of the owner, then with the fewest pods, then by name", () => {
  const on = placed(["node1", "web"], ["node2", "api"], ["node2", "api"], ["node10", "web"]);
  assert.equal(chooseNode(pod("web"), NODES, on), "node2");
  assert.equal(chooseNode(pod("other"), NODES, on), "node1");
  assert.equal(chooseNode(pod(), NODES, [...on, ...placed(["node1", "db"])]), "node10");
  assert.equal(chooseNode(pod(), NODES, []), "node1");
});

test("chooseNode: no cordoned or unready node, and none that the selector excludes", () => {
  const unready = {
    ...(node("node1") as object),
    status: { conditions: [{ type: "Ready", status: "False" }] },
  } as never;
  const nodes = [unready, node("node2", { unschedulable: true }), node("node3")];
  assert.equal(chooseNode(pod(), nodes, placed(["node3", "web"])), "node3");
  assert.equal(chooseNode(pod(undefined, { nodeSelector: { host: "node2" } }), nodes, []), undefined);
});

test("chooseNode: a taint excludes pods without a toleration of its key and value, or of every taint", () => {
  const nodes = [node("tainted", { taints: [{ key: "lab", value: "a", effect: "NoSchedule" }] })];
  const tolerating = (...tolerations: object[]) => chooseNode(pod(undefined, { tolerations }), nodes, []);
  assert.equal(chooseNode(pod(), nodes, []), undefined);
  assert.equal(tolerating({ key: "lab", value: "b" }, { key: "other", operator: "Exists" }), undefined);
  assert.equal(tolerating({ key: "lab", value: "a", effect: "NoExecute" }), undefined);
  assert.equal(tolerating({ key: "lab", value: "a", effect: "NoSchedule" }), "tainted");
  assert.equal(tolerating({ key: "lab", operator: "Exists" }), "tainted");
  assert.equal(tolerating({ operator: "Exists" }), "tainted");
  const soft = [node("soft", { taints: [{ key: "lab", effect: "PreferNoSchedule" }] })];
  assert.equal(chooseNode(pod(), soft, []), "soft");
});

test("chooseNode: a required node affinity needs one of its terms, of which all expressions hold", () => {
  const control = { metadata: { name: "control", labels: { control: "", disk: "ssd" } } } as never;
  const nodes = [node("plain"), control];
  const chosen = (...terms: object[]) => {
    const affinity = { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: terms } } };
    return chooseNode(pod(undefined, { affinity }), nodes, []);
  };
  const term = (...matchExpressions: object[]) => ({ matchExpressions });
  assert.equal(chosen(term({ key: "control", operator: "DoesNotExist" })), "plain");
  assert.equal(chosen(term({ key: "control", operator: "Exists" })), "control");
  assert.equal(chosen(term({ key: "disk", operator: "In", values: ["hdd", "ssd"] })), "control");
  assert.equal(chosen(term({ key: "disk", operator: "NotIn", values: ["ssd"] })), "plain");
  const never = { key: "disk", operator: "In", values: ["hdd"] };
  assert.equal(chosen(term({ key: "control", operator: "Exists" }, never)), undefined);
  assert.equal(chosen(term(never), term({ key: "control", operator: "Exists" })), "control");
  assert.equal(chosen(term({ key: "disk", operator: "Gt", values: ["1"] })), undefined);
  assert.equal(chosen({}), undefined);
});
