import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import type { Pod } from "#kube/client";
import { type AddressBlock, type AddressPool, type EgressSpec, egressLabels } from "#kube/coil";
import { egressAccess } from "../access/index.ts";
import { admitClients, routerClient } from "./clients.ts";
import { addressOwners, ownerBlock, ownerPool } from "./owners.ts";

const EGRESS = { namespace: "internet", name: "nat" };
const BOTH = ["10.64.9.1", "fd02::91"];

interface PodParts {
  readonly names?: string;
  readonly namespace?: string;
  readonly labels?: object;
  readonly spec?: object;
  readonly status?: object;
}

/** A pod with two addresses that names the Egress, but for what is given. */
function podOf({ names = "nat", namespace = "default", labels, spec, status }: PodParts): Pod {
  return {
    metadata: {
      name: "p",
      namespace,
      uid: "1",
      resourceVersion: "1",
      annotations: { "egress.coil.cybozu.com/internet": names },
      labels,
    },
    spec: { nodeName: "node1", ...spec },
    status: { phase: "Running", podIPs: BOTH.map((ip) => ({ ip })), ...status },
  } as unknown as Pod;
}

function accessOf(spec: Partial<EgressSpec> = {}): ReturnType<typeof egressAccess> {
  return egressAccess({
    metadata: EGRESS,
    spec: { destinations: ["0.0.0.0/0"], ...spec },
  });
}

const anyNode = (): boolean => true;

test("admitClients: a pod is a client by its annotation, while it has not ended, with the addresses that it has, unless it is of the host's network", () => {
  const addresses = (more: PodParts): string[] => {
    const pods = [routerClient(podOf(more), EGRESS, { withLabels: false })];
    const rules = { access: accessOf(), namespace: () => undefined, isOfNode: anyNode };
    return admitClients(pods, rules).clients.flatMap((one) => one.addresses.map(String));
  };
  assert.deepEqual(addresses({}), BOTH);
  assert.deepEqual(addresses({ names: "other, nat" }), BOTH);
  assert.deepEqual(addresses({ names: "other" }), []);
  assert.deepEqual(addresses({ names: "" }), []);
  assert.deepEqual(addresses({ spec: { hostNetwork: true } }), []);
  assert.deepEqual(addresses({ labels: { app: "client" } }), BOTH);
  assert.deepEqual(addresses({ labels: egressLabels("other") }), [], "a router is no client");
  for (const phase of ["Succeeded", "Failed"]) assert.deepEqual(addresses({ status: { phase } }), []);
  for (const phase of ["Pending", "Unknown"]) assert.deepEqual(addresses({ status: { phase } }), BOTH);
  assert.deepEqual(addresses({ status: { podIPs: [] } }), []);
  assert.deepEqual(addresses({ status: { podIPs: undefined } }), []);
  assert.deepEqual(addresses({ status: { podIPs: [{ ip: "none" }, {}, { ip: "fd02::91" }] } }), ["fd02::91"]);
});

test("admitClients: a pod whose namespace may not use the Egress is none, as one that the Egress chooses without consent; both are counted", () => {
  const admitted = (more: PodParts, spec: Partial<EgressSpec>, clientsOf?: string) => {
    const withLabels = spec.clients !== undefined;
    const namespace = (name: string) => ({ name, labels: {}, clientsOf });
    const pods = [routerClient(podOf(more), EGRESS, { withLabels })];
    const { clients, refused } = admitClients(pods, { access: accessOf(spec), namespace, isOfNode: anyNode });
    return [clients.length, refused.access];
  };
  const others = { clients: [{ namespaceSelector: {}, podSelector: { matchLabels: { app: "a" } } }] };
  const chosen = { names: "", labels: { app: "a" } };
  assert.deepEqual(admitted({}, { allowedNamespaces: { names: ["default"] } }), [1, 0]);
  assert.deepEqual(admitted({}, { allowedNamespaces: { names: ["other"] } }), [0, 1]);
  assert.deepEqual(admitted(chosen, others), [0, 1]);
  assert.deepEqual(admitted(chosen, others, "internet/nat"), [1, 0]);
  assert.deepEqual(admitted({ names: "", labels: { app: "b" } }, others, "internet/nat"), [0, 0]);
});

test("admitClients: without the Egress nobody is a client", () => {
  const pods = [routerClient(podOf({}), EGRESS, { withLabels: false })];
  const rules = { access: undefined, namespace: () => undefined, isOfNode: anyNode };
  assert.deepEqual(admitClients(pods, rules).clients, []);
});

test("addressOwners: an address of a pool is of a block of the pod's node; of another address, or behind another plugin, nothing is asked", () => {
  const pool = (ipv4: string, blockSizeBits: number): AddressPool =>
    ({
      metadata: { name: ipv4, uid: "p", resourceVersion: "1" },
      spec: { blockSizeBits, subnets: [{ ipv4, ipv6: "fd02::/112" }] },
    }) as unknown as AddressPool;
  const block = (ipv4: string, ipv6: string, node: string): AddressBlock =>
    ({
      metadata: { name: ipv4, uid: "b", resourceVersion: "1", labels: { "coil.cybozu.com/node": node } },
      index: 0,
      ipv4,
      ipv6,
    }) as unknown as AddressBlock;
  const pools = [pool("10.64.0.0/16", 5)].map(ownerPool);
  const blocks = [block("10.64.9.0/27", "fd02::80/123", "node1"), block("10.64.9.32/27", "fd02::a0/123", "node2")].map(
    ownerBlock,
  );
  const isOfNode = addressOwners(pools, (prefix) => blocks.filter(({ prefixes }) => prefixes.includes(prefix)));
  const asked = (text: string, node: string): boolean => isOfNode(IpAddress.parse(text), node);
  assert.equal(asked("10.64.9.1", "node1"), true);
  assert.equal(asked("10.64.9.1", "node2"), false, "an address of another node");
  assert.equal(asked("10.64.9.33", "node1"), false);
  assert.equal(asked("10.64.10.1", "node1"), false, "no block has it");
  assert.equal(asked("fd02::91", "node1"), true);
  assert.equal(asked("fd02::a1", "node1"), false);
  assert.equal(asked("192.0.2.1", "node1"), true, "an address of no pool");
  const refused = admitClients([routerClient(podOf({ spec: { nodeName: "node2" } }), EGRESS, { withLabels: false })], {
    access: accessOf(),
    namespace: () => undefined,
    isOfNode,
  });
  assert.deepEqual([refused.clients.length, refused.refused.address], [0, 1]);
  assert.equal(addressOwners([], () => [])(IpAddress.parse("10.64.9.1"), "node2"), true);
});
