import assert from "node:assert/strict";
import { test } from "node:test";
import { environmentOf } from "./environment.ts";

test("environmentOf: values, and fields of the pod; its name is HOSTNAME unless the container has one", () => {
  const field = (name: string, fieldPath: string) => ({ name, valueFrom: { fieldRef: { fieldPath } } });
  const pod = (env: readonly object[]) =>
    ({
      metadata: { name: "nat-1", namespace: "internet", uid: "u" },
      spec: { nodeName: "node1", containers: [{ name: "egress", env }] },
    }) as never;
  const place = { ips: ["10.0.0.1", "fd00::1"], hostIps: ["172.31.0.11"] };
  const env = [
    field("COIL_POD_ADDRESSES", "status.podIPs"),
    field("COIL_POD_NAMESPACE", "metadata.namespace"),
    field("NODE", "spec.nodeName"),
    field("UNKNOWN", "metadata.labels['x']"),
    { name: "COIL_EGRESS_NAME", value: "nat" },
  ];
  assert.deepEqual(environmentOf(pod(env), place), {
    HOSTNAME: "nat-1",
    COIL_POD_ADDRESSES: "10.0.0.1,fd00::1",
    COIL_POD_NAMESPACE: "internet",
    NODE: "node1",
    UNKNOWN: "",
    COIL_EGRESS_NAME: "nat",
  });
  assert.equal(environmentOf(pod([{ name: "HOSTNAME", value: "x" }]), place)["HOSTNAME"], "x");
});
