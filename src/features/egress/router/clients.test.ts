import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pod } from "#kube/client";
import { egressLabels } from "#kube/coil";
import { clientOf } from "./clients.ts";

const EGRESS = { namespace: "internet", name: "nat" };

/** A pod with two addresses that names the Egress, but for what is given. */
function podOf(more: {
  readonly names?: string;
  readonly labels?: object;
  readonly spec?: object;
  readonly status?: object;
}): Pod {
  const annotations = { "egress.coil.cybozu.com/internet": more.names ?? "nat" };
  const status = { phase: "Running", podIPs: [{ ip: "10.64.9.1" }, { ip: "fd02::91" }], ...more.status };
  const metadata = {
    name: "p",
    namespace: "default",
    uid: "1",
    resourceVersion: "1",
    annotations,
    labels: more.labels,
  };
  return { metadata, spec: { ...more.spec }, status } as unknown as Pod;
}

test("clientOf: a pod is a client by its annotation, while it has not ended, with the addresses that it has, unless it is of the host's network", () => {
  const addresses = (more: Parameters<typeof podOf>[0]): string[] =>
    clientOf(podOf(more), EGRESS).addresses.map(String);
  const both = ["10.64.9.1", "fd02::91"];
  assert.deepEqual(addresses({}), both);
  assert.deepEqual(addresses({ names: "other, nat" }), both);
  assert.deepEqual(addresses({ names: "other" }), []);
  assert.deepEqual(addresses({ names: "" }), []);
  assert.deepEqual(addresses({ spec: { hostNetwork: true } }), []);
  assert.deepEqual(addresses({ labels: { app: "client" } }), both);
  assert.deepEqual(addresses({ labels: egressLabels("other") }), [], "a router is no client");
  for (const phase of ["Succeeded", "Failed"]) assert.deepEqual(addresses({ status: { phase } }), []);
  for (const phase of ["Pending", "Unknown"]) assert.deepEqual(addresses({ status: { phase } }), both);
  assert.deepEqual(addresses({ status: { podIPs: [] } }), []);
  assert.deepEqual(addresses({ status: { podIPs: undefined } }), []);
  assert.deepEqual(addresses({ status: { podIPs: [{ ip: "none" }, {}, { ip: "fd02::91" }] } }), ["fd02::91"]);
});
