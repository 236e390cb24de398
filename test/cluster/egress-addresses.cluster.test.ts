/** Stable source addresses of routers, as docs/guides/egress.md has them, with the shipped programs on one node. */
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { openKernel } from "#kernel/net";
import { type Draft, resources } from "#kube/client";
import { type AddressPool, coilResources, type Egress, POOL_LABEL } from "#kube/coil";
import { CniNode } from "#test/cni-node";
import { isthmus, until } from "#test/lab";

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
