import assert from "node:assert/strict";
import { test } from "node:test";
import { isNetnsOf, podNetnsPrefix } from "./names.ts";
import { planTopology } from "./plan.ts";

/** All namespaces that a lab can have, with those of pods on its own API server and on another one. */
function namesOf(lab: string): string[] {
  const plan = planTopology({ lab, nodes: 12, families: "dual", tunnel: true, uplinks: true, egress: true });
  const machines = [plan.fabric, plan.controlPlane?.netns, plan.outside?.netns, plan.uplinks?.internet.netns];
  const links = plan.uplinks?.links ?? [];
  return [...machines, ...[...plan.nodes, ...links].map(({ netns }) => netns)]
    .filter((name) => name !== undefined)
    .concat(["node1-0123abcd", `isthmus-${lab}-q2w3e4-node12-89efcdab`].map((rest) => `${podNetnsPrefix(lab)}${rest}`));
}

test("isNetnsOf: each name belongs to its lab, and to no lab whose name is a part of its own", () => {
  const labs = [
    "a",
    "a-b",
    "a-pod",
    "a-node1",
    "a-pod-node1",
    "a-fabric",
    "isthmus-a",
    "b",
    "fabric",
    "pod",
    "0123abcd",
  ];
  for (const lab of labs)
    for (const name of namesOf(lab))
      assert.deepEqual(
        labs.filter((one) => isNetnsOf(one, name)),
        [lab],
        name,
      );
  assert.equal(isNetnsOf("a", "isthmus-a-notes"), false);
});
