import assert from "node:assert/strict";
import { test } from "node:test";
import type { Pod } from "#kube/client";
import { podsByAddress } from "./pods-by-address.ts";

const pod = (uid: string, ips: readonly string[], phase: "Running" | "Succeeded" | "Failed" = "Running"): Pod => ({
  metadata: { name: uid, namespace: "ns", uid, resourceVersion: "1" },
  spec: { nodeName: "node1", containers: [] },
  status: { phase, podIPs: ips.map((ip) => ({ ip })) },
});

test("podsByAddress: an address is the running pod's, not that of pods that have ended; of two pods it is nobody's", () => {
  const found = podsByAddress(
    [
      pod("job", ["10.1.0.2"], "Succeeded"),
      pod("now", ["10.1.0.2", "fd01::0:2"]),
      pod("failed", ["10.1.0.3"], "Failed"),
      ...["a", "b", "c"].map((uid) => pod(uid, ["10.1.0.4"])),
      { ...pod("far", ["10.1.0.5"]), spec: { nodeName: "node2", containers: [] } },
      { ...pod("host", ["10.1.0.6"]), spec: { nodeName: "node1", hostNetwork: true, containers: [] } },
    ],
    "node1",
  );
  assert.deepEqual(
    [...found].map(([address, { metadata }]) => [address, metadata.uid]),
    [
      ["10.1.0.2", "now"],
      ["fd01::2", "now"],
    ],
  );
});
