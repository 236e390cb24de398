/** Stable source addresses of routers, as docs/guides/egress.md has them, with the shipped programs on one node. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { openKernel } from "#kernel/net";
import { type Deployment, type Draft, findObject, type Pod, resources } from "#kube/client";
import {
  type AddressPool,
  type BlockRequest,
  coilResources,
  type Egress,
  egressPoolName,
  POOL_LABEL,
} from "#kube/coil";
import { CniNode, NODE } from "#test/cni-node";
import { isthmus, until } from "#test/lab";
import { collectOrphans } from "#test/orphans";

const GUIDE = join(import.meta.dirname, "../../docs/guides/egress.md");

test("the guide's pool of single addresses: routers have exactly these, each goes back with its pod, and one too many is told the pool's name", async (t) => {
  const yaml = /```yaml\n(.*?)```/s.exec(readFileSync(GUIDE, "utf8"))?.[1] ?? assert.fail();
  await using node = await CniNode.open("egress-addresses");
  const file = join(node.folder, "guide.yaml");
  writeFileSync(file, yaml);
  const checked = await isthmus(["validate", file]);
  assert.equal(checked.code, 0, checked.stdout);
  const [pool, namespace, egress] = parseAllDocuments(yaml).map((one) => one.toJS() as object);
  await node.api.create(coilResources.addressPools, pool as Draft<AddressPool>);
  await node.api.create(resources.namespaces, namespace as never);
  await node.api.create(coilResources.egresses, egress as Draft<Egress>);
  const kernel = openKernel();
  const add = async (name: string): Promise<string> => {
    const netns = `isthmus-egress-addresses-${process.pid}-${name}`;
    kernel.createNetNs(netns)[Symbol.dispose]();
    t.after(() => kernel.deleteNetNs(netns));
    await node.createPod(name, "internet");
    const [address = ""] = await node.call("Add", { containerId: name, netns, pod: name, namespace: "internet" });
    return address;
  };
  const remove = (name: string) =>
    node.call("Del", {
      containerId: name,
      netns: `isthmus-egress-addresses-${process.pid}-${name}`,
      pod: name,
      namespace: "internet",
    });
  const blocks = async () =>
    (await node.blocks()).filter(({ metadata }) => metadata.labels?.[POOL_LABEL] === "internet");
  const all = ["203.0.113.8", "203.0.113.9"];
  assert.deepEqual([await add("r0"), await add("r1")].sort(), all);
  await assert.rejects(add("r2"), /pool internet does not have free blocks/);
  // A rollout: one goes, and the next one comes, as often as it may be.
  let running = ["r0", "r1"];
  for (let round = 3; round < 8; round += 1) {
    const [first = "", ...rest] = running;
    await remove(first);
    await until("its block is in no node's hands", async () => (await blocks()).length === rest.length);
    assert.ok(all.includes(await add(`r${round}`)));
    running = [...rest, `r${round}`];
    assert.deepEqual((await blocks()).map(({ ipv4 }) => ipv4).sort(), ["203.0.113.8/32", "203.0.113.9/32"]);
  }
});

test("an Egress with addresses: its routers have exactly these beside other pods of the namespace, over restarts, a rollout and the loss of a node; the last one that ends takes the pool along", async (t) => {
  const NAT = { namespace: "mixed", name: "nat" };
  const pool = egressPoolName(NAT);
  await using node = await CniNode.open("egress-own");
  const flags = ["--metrics-addr=127.0.0.1:0", "--health-addr=127.0.0.1:0", "--webhook-addr=none", "--image=none"];
  await node.api.create(resources.namespaces, { metadata: { name: NAT.namespace } });
  node.run("coil-egress-controller", "--egress-address-range=203.0.113.0/24", ...flags);
  const kernel = openKernel();
  const netnsOf = (name: string): string => `isthmus-egress-own-${process.pid}-${name}`;
  const made = new Set<string>();
  t.after(() => {
    for (const name of made) kernel.deleteNetNs(netnsOf(name));
  });
  const call = (method: "Add" | "Del" | "Check", pod: string) =>
    node.call(method, { containerId: pod, netns: netnsOf(pod), pod, namespace: NAT.namespace });
  /** The kubelet's part: a pod of these labels, and its ADD. */
  const add = async (name: string, labels: Readonly<Record<string, string>>): Promise<string> => {
    kernel.createNetNs(netnsOf(name))[Symbol.dispose]();
    made.add(name);
    const spec = { nodeName: NODE, containers: [{ name: "c", image: "none" }] };
    await node.api.create(resources.pods, { metadata: { name, namespace: NAT.namespace, labels }, spec } as Draft<Pod>);
    const [address = ""] = await call("Add", name);
    return address;
  };
  const remove = async (name: string): Promise<void> => {
    await call("Del", name);
    await node.api.delete(resources.pods, { name, namespace: NAT.namespace }, { gracePeriodSeconds: 0 });
  };
  await node.api.create(coilResources.egresses, {
    metadata: NAT,
    spec: {
      destinations: ["0.0.0.0/0"],
      replicas: 2,
      addresses: [{ ipv4: "203.0.113.8/32" }, { ipv4: "203.0.113.20/32" }],
      template: { spec: { containers: [{ name: "egress" }] } },
    },
  } as Draft<Egress>);
  let deployment: Deployment | undefined;
  await until("the Deployment is there", async () => {
    deployment = await findObject(node.api, resources.deployments, NAT);
    return deployment !== undefined;
  });
  const { strategy, template } = deployment?.spec ?? assert.fail();
  assert.deepEqual(strategy, { type: "RollingUpdate", rollingUpdate: { maxSurge: 0, maxUnavailable: 1 } });
  assert.equal(template.metadata?.annotations?.["coil.cybozu.com/pool"], pool);
  const labels = template.metadata?.labels ?? assert.fail();
  const all = ["203.0.113.20", "203.0.113.8"];
  const blocks = async (): Promise<readonly string[]> =>
    (await node.blocks())
      .filter(({ metadata }) => metadata.labels?.[POOL_LABEL] === pool)
      .map(({ ipv4 = "" }) => ipv4.replace("/32", ""))
      .sort();
  const held = new Map([
    ["r0", await add("r0", labels)],
    ["r1", await add("r1", labels)],
  ]);
  assert.deepEqual([...held.values()].sort(), all);
  assert.match(await add("other", { app: "web" }), /^10\.210\.0\./);
  await assert.rejects(add("r2", labels), new RegExp(`pool ${pool} does not have free blocks`));
  // coild and a router's container start again: the addresses are those of the pods.
  await node.killCoild();
  await node.startCoild();
  for (const [name, address] of held) assert.deepEqual((await call("Add", name))[0], address);
  assert.deepEqual(await blocks(), all);
  // A rollout with maxSurge 0.
  for (let round = 3; round < 6; round += 1) {
    const [[gone = "", address] = []] = held;
    await remove(gone);
    held.delete(gone);
    await until("its block is in no node's hands", async () => (await blocks()).length === 1);
    assert.equal(await add(`r${round}`, labels), address, "the one that is free");
    held.set(`r${round}`, address ?? "");
    assert.deepEqual([...held.values()].sort(), all);
  }
  // A router that was on another node: when that is gone, the address comes back.
  const [[moved = "", its] = []] = held;
  await remove(moved);
  held.delete(moved);
  await until("its block is in no node's hands", async () => (await blocks()).length === 1);
  await node.api.create(resources.nodes, { metadata: { name: "lost" } });
  const request = { metadata: { name: "lost" }, spec: { nodeName: "lost", poolName: pool } };
  await node.api.create(coilResources.blockRequests, request as Draft<BlockRequest>);
  await until("the other node has it", async () => (await blocks()).length === 2);
  await assert.rejects(add("r6", labels), /does not have free blocks/);
  await node.api.delete(resources.nodes, { name: "lost" });
  await collectOrphans(node.api);
  assert.equal((await blocks()).length, 1);
  assert.equal((await call("Add", "r6"))[0], its);
  held.set("r6", its ?? "");
  assert.deepEqual([...held.values()].sort(), all);
  const stored = () => findObject(node.api, coilResources.addressPools, { name: pool });
  await node.api.delete(coilResources.egresses, NAT);
  await until("the pool is being deleted", async () => (await stored())?.metadata.deletionTimestamp !== undefined);
  assert.deepEqual(await blocks(), all, "routers keep their addresses until they end");
  for (const name of held.keys()) await remove(name);
  await until("the pool is gone", async () => (await stored()) === undefined);
  assert.doesNotMatch(node.said(), /because of a bug/);
});
