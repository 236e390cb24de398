import assert from "node:assert/strict";
import { test } from "node:test";
import type { KubeApi } from "#kube/client";
import { auditWhole } from "./whole-audit.ts";

const pod = (name: string, ip: string, annotations: Readonly<Record<string, string>> = {}) => ({
  metadata: { namespace: "ns", name, uid: `uid-${name}`, annotations },
  spec: { nodeName: "node1" },
  status: { phase: "Running", podIPs: [{ ip }] },
});

test("auditWhole: addresses of pods with NICs of VPCs are no blocks' addresses, and two VPCs may have the same; a claim of another pod says nothing", async (t) => {
  const items: Readonly<Record<string, readonly object[]>> = {
    nodes: [{ metadata: { name: "node1" } }],
    pods: [
      pod("a", "192.168.0.10", { "isthmus.dev/claim": "uid-a" }),
      pod("b", "192.168.0.10", { "isthmus.dev/claim": "uid-b" }),
      pod("c", "192.168.0.11", { "isthmus.dev/claim": "uid-b" }),
    ],
  };
  const listAll = async ({ plural }: { readonly plural: string }) => ({ items: items[plural] ?? [] });
  const api = { listAll } as unknown as KubeApi;
  const { findings } = await auditWhole(api, [], { signal: t.signal, hasEgress: false });
  assert.deepEqual(
    findings.map(({ kind, text }) => `${kind}: ${text}`),
    ["address-outside-block: 192.168.0.11 of pod ns/c is in no block of node node1"],
  );
});
