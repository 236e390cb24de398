import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pod } from "#kube/client";
import { type AddressBlock, NODE_LABEL, POOL_LABEL, RESERVED_LABEL } from "#kube/coil";
import { BlockFinder, planRelease, podsToReplace } from "./replacement.ts";

const meta = (name: string) => ({ name, uid: `uid-${name}`, resourceVersion: "1" });

function block(name: string, ipv4: string, node: string, reserved: boolean): AddressBlock {
  const labels = { [POOL_LABEL]: "default", [NODE_LABEL]: node, ...(reserved ? { [RESERVED_LABEL]: "true" } : {}) };
  return { metadata: { ...meta(name), labels }, index: 0, ipv4 };
}

function pod(
  name: string,
  podIP: string | undefined,
  more: { node?: string; phase?: string; hostNetwork?: boolean } = {},
): Pod {
  const { node = "n1", phase = "Running", hostNetwork } = more;
  return {
    metadata: { ...meta(name), namespace: "default" },
    spec: {
      containers: [],
      ...(node === "" ? {} : { nodeName: node }),
      ...(hostNetwork === undefined ? {} : { hostNetwork }),
    },
    status: { phase, ...(podIP === undefined ? {} : { podIP, podIPs: [{ ip: podIP }] }) },
  };
}

const BLOCKS = [
  block("default-0-v1", "10.0.0.0/30", "n1", true),
  block("default-1-v1", "10.0.0.4/30", "n1", true),
  block("default-2-v1", "10.0.0.8/30", "n2", true),
  block("default-3", "10.0.0.12/30", "n1", false),
  { ...block("odd", "nothing", "n1", false) },
];

test("podsToReplace: pods of v1, and neither of v2, of the host's network, finished nor unscheduled; those without an address wait", () => {
  const pods = [
    pod("v1", "10.0.0.1"),
    pod("v2", "10.0.0.13"),
    pod("host", "192.0.2.1", { hostNetwork: true }),
    pod("done", "10.0.0.2", { phase: "Succeeded" }),
    pod("failed", "10.0.0.2", { phase: "Failed" }),
    pod("waiting", undefined, { node: "" }),
    pod("lost", "10.99.0.1"),
    pod("no-address", undefined),
  ];
  const { due, waiting } = podsToReplace(pods, new BlockFinder(BLOCKS));
  assert.deepEqual(
    [due, waiting].map((some) => some.map(({ name }) => name)),
    [["v1", "lost"], ["no-address"]],
  );
});

test("podsToReplace: a static pod's object is known as such, because deleting it does not replace the pod", () => {
  const mirror = pod("static", "10.0.0.1");
  const annotated = {
    ...mirror,
    metadata: { ...mirror.metadata, annotations: { "kubernetes.io/config.mirror": "x" } },
  };
  const { due } = podsToReplace([annotated, pod("v1", "10.0.0.2")], new BlockFinder(BLOCKS));
  assert.deepEqual(
    due.map(({ name, isMirror }) => [name, isMirror]),
    [
      ["static", true],
      ["v1", false],
    ],
  );
});

test("planRelease: a reserved block stays while a pod has an address of it, or a pod of its node could not be replaced", () => {
  const names = (blocks: readonly AddressBlock[]): string[] => blocks.map(({ metadata }) => metadata.name);
  const free = planRelease(BLOCKS, [pod("v2", "10.0.0.13")], new Map());
  assert.deepEqual(names(free.release), ["default-0-v1", "default-1-v1", "default-2-v1"]);
  assert.deepEqual(free.held, []);
  // It may run elsewhere than its block's node, after a node was renamed.
  const some = planRelease(BLOCKS, [pod("b", "10.0.0.5", { node: "n9" }), pod("a", "10.0.0.6")], new Map());
  assert.deepEqual(names(some.release), ["default-0-v1", "default-2-v1"]);
  assert.deepEqual(
    some.held.map(({ block: one, pods }) => [one.metadata.name, ...pods]),
    [["default-1-v1", "default/a", "default/b"]],
  );
  const failed = planRelease(BLOCKS, [], new Map([["n1", ["default/x"]]]));
  assert.deepEqual(names(failed.release), ["default-2-v1"]);
  assert.equal(failed.held.length, 2);
});
