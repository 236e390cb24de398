/** The controllers and daemons of the pod network are ready after a start at which nothing fails, as the probes of their manifests need it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { openKernel } from "#kernel/net";
import { CniNode } from "#test/cni-node";
import { start, until } from "#test/lab";

const PORTS = { coild: 9385, "coil-ipam-controller": 9387, "coil-router": 9389 } as const;

test("readiness: coild, coil-ipam-controller and coil-router answer /readyz with 200, every part ok, within seconds of a start without a failure", async () => {
  // A kernel without FoU is a failure of the default driver, and is said.
  await using node = await CniNode.open("ready", ["--tunnel-driver=auto"]);
  node.run("coil-router");
  for (const [program, port] of Object.entries(PORTS)) {
    let said = "";
    const ask = async (): Promise<boolean> => {
      const url = `http://127.0.0.1:${port}/readyz?verbose`;
      said = (await start(node.inside("curl", "-s", "-w", "%{http_code}", "--max-time", "2", url)).ended).stdout;
      return said.endsWith("200");
    };
    await until(`${program} is ready`, ask, { deadlineMs: 10_000, seen: () => said });
    assert.doesNotMatch(said, /^\[-\]/m, program);
  }
});

test("coild: after a start while empty blocks cannot be returned, ADDs go on from them at once, and routes are exported; later they are returned", async (t) => {
  await using node = await CniNode.open("unreturned", ["--tunnel-driver=auto"]);
  const kernel = openKernel();
  const call = (pod: string) => ({ containerId: `c-${pod}`, netns: `isthmus-unreturned-${process.pid}-${pod}`, pod });
  for (const name of ["before", "after"]) {
    const { netns } = call(name);
    kernel.createNetNs(netns)[Symbol.dispose]();
    t.after(() => kernel.deleteNetNs(netns));
    await node.createPod(name);
  }
  await node.call("Add", call("before"));
  // As with a policy's webhook whose pods need a network, or a full etcd.
  const fault = node.server.faults.add({
    match: { resource: "addressblocks", verb: "delete" },
    action: { status: 500 },
  });
  await node.call("Del", call("before"));
  await node.endCoild();
  const [block, ...others] = await node.blocks();
  assert.deepEqual([block?.ipv4 !== undefined, others], [true, []]);
  await node.startCoild("--tunnel-driver=auto");
  const startMs = performance.now();
  const [address = ""] = await node.call("Add", call("after"));
  assert.ok(performance.now() - startMs < 3000, `${performance.now() - startMs} ms`);
  assert.ok(Cidr.parse(block?.ipv4 ?? "").contains(IpAddress.parse(address)), address);
  assert.match(node.ip("route", "show", "table", "119"), new RegExp(`^${block?.ipv4?.replaceAll(".", "\\.")} `, "m"));
  await node.call("Del", call("after"));
  node.server.faults.remove(fault);
  await until("the block is returned", async () => (await node.blocks()).length === 0);
});
