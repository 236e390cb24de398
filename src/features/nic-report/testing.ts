import type { Pod } from "#kube/client";
import type { NicClaim, NicStatus } from "#kube/nic";

/** The uid of the pod that tests have. */
export const UID = "0a64ecb8-6f54-4d0f-9e42-00000000000a";
const CREATED = "2026-01-01T00:00:00Z";

/** A pod for a test of this module: it asks for NICs of `vpc-1` and is on `node-1`. */
export function testPod(
  init: { readonly annotations?: object; readonly spec?: object; readonly status?: object } = {},
): Pod {
  const { annotations = {}, spec = { nodeName: "node-1" }, status = {} } = init;
  const metadata = { name: "a", namespace: "ns", uid: UID, resourceVersion: "1", creationTimestamp: CREATED };
  return {
    metadata: { ...metadata, annotations: { "isthmus.dev/vpc": "vpc-1", ...annotations } },
    spec,
    status,
  } as unknown as Pod;
}

/** The NicClaim of {@link testPod}. */
export function testClaim(nics: readonly NicStatus[], init: Partial<NonNullable<NicClaim["status"]>> = {}): NicClaim {
  return {
    metadata: { name: UID, namespace: "ns", uid: "c", resourceVersion: "1", creationTimestamp: "2026-01-01T00:00:01Z" },
    spec: {
      podName: "a",
      podUID: UID,
      vpc: "vpc-1",
      provider: "neutron",
      nics: nics.map(({ name }) => ({ name })),
    },
    status: { phase: "Active", nodeName: "node-1", nics: [...nics], ...init },
  };
}

/** A NIC that is ready. */
export const READY_NIC: NicStatus = {
  name: "eth0",
  portID: "30b6911d-1111-4111-8111-000000000001",
  createdByController: true,
  state: "Ready",
  ips: [{ ip: "10.0.0.5", prefixLength: 24 }],
  host: "node-1",
  vifType: "ovs",
  createdAt: "2026-01-01T00:00:02Z",
  activeAt: "2026-01-01T00:00:06Z",
};
