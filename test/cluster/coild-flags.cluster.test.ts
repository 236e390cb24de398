/** Flags of `coild` for nodes that Coil or Calico had before, as shipped: `--register-from-main` and `--compat-calico`; and `--clear-routes-on-shutdown`. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { type TestContext, test } from "node:test";
import { openKernel } from "#kernel/net";
import { isKubeError, resources } from "#kube/client";
import { CniNode, NODE } from "#test/cni-node";
import { until } from "#test/lab";

function absent(error: unknown): undefined {
  if (!isKubeError(error, "not-found")) throw error;
}

/** A node with namespaces for pods, and what `ip` says in one of them. */
async function open(t: TestContext, pods: number) {
  const node = await CniNode.open("flags");
  const kernel = openKernel();
  const names = Array.from({ length: pods }, (_, at) => `isthmus-flags-${process.pid}-pod${at}`);
  for (const name of names) kernel.createNetNs(name)[Symbol.dispose]();
  t.after(async () => {
    await node[Symbol.asyncDispose]();
    for (const name of names) kernel.deleteNetNs(name);
  });
  const add = async (at: number, containerId = `c${at}`): Promise<string[]> => {
    const netns = names[at] ?? assert.fail();
    if (containerId === `c${at}`) await node.createPod(`p${at}`);
    return node.call("Add", { containerId, netns, pod: `p${at}` });
  };
  const inPod = (at: number, ...args: readonly string[]): string =>
    execFileSync("ip", ["-n", names[at] ?? assert.fail(), ...args], { encoding: "utf8" });
  return { node, names, add, inPod };
}

test("coild --register-from-main: addresses that only routes of the main table tell are the pods', and get their routes in table 116", async (t) => {
  const { node, add, inPod } = await open(t, 6);
  // As Coil 2.0.1 made them: routes in the main table, of Coil's protocol or of none. The pods do not tell their addresses.
  const old = [await add(0), await add(1)];
  await node.killCoild();
  for (const [at, addresses] of old.entries()) {
    for (const address of addresses) {
      const family = address.includes(":") ? "-6" : "-4";
      const [, link = ""] = /dev (\S+)/.exec(node.ip(family, "route", "show", "table", "116", address)) ?? [];
      node.ip(family, "route", "del", address, "table", "116");
      node.ip(family, "route", "add", address, "dev", link, "proto", at === 0 ? "30" : "boot");
      inPod(at, family, "address", "del", `${address}/${family === "-6" ? 128 : 32}`, "dev", "eth0");
    }
  }
  await node.startCoild("--register-from-main");
  const table = (): string =>
    node.ip("-4", "route", "show", "table", "116") + node.ip("-6", "route", "show", "table", "116");
  for (const address of old.flat()) {
    await until(
      `table 116 leads to ${address}`,
      () =>
        table()
          .split("\n")
          .some((line) => line.startsWith(`${address} `)),
      {
        seen: node.said.bind(node),
      },
    );
  }
  const fresh = [await add(2), await add(3), await add(4)];
  assert.equal(new Set([...old, ...fresh].flat()).size, 10, "no address is given out twice");
  assert.equal((await node.blocks()).length, 2, "the block of four was full with two more");
});

test("coild --clear-routes-on-shutdown: table 119 is emptied when coild ends while its Node does not exist, and only then", async (t) => {
  const { node, add } = await open(t, 1);
  await add(0);
  const exported = (): string[] =>
    (["-4", "-6"] as const).flatMap((family) =>
      node
        .ip(family, "route", "show", "table", "119")
        .split("\n")
        .filter((line) => line !== ""),
    );
  await until("both prefixes are exported", () => exported().length === 2);
  for (const [flags, isThere, left] of [
    [["--clear-routes-on-shutdown"], true, 2],
    [[], false, 2],
    [["--clear-routes-on-shutdown"], false, 0],
  ] as const) {
    await node.killCoild();
    await node.startCoild(...flags);
    await until("coild knows its blocks", () => exported().length === 2);
    if (!isThere) await node.api.delete(resources.nodes, { name: NODE }).catch(absent);
    await node.endCoild();
    assert.equal(exported().length, left, `${flags.join()}, Node ${isThere ? "there" : "gone"}`);
  }
});

test("coild --compat-calico: the host's link has Calico's name, a new sandbox of a pod replaces the old one, whose late DEL leaves the new one", async (t) => {
  const { node, names, add } = await open(t, 2);
  await node.killCoild();
  await node.startCoild("--compat-calico");
  const name = `veth${createHash("sha1").update("default.p0").digest("hex").slice(0, 11)}`;
  const [first] = await add(0);
  assert.match(node.ip("-o", "link", "show", name), /alias COIL:default:c0:eth0/);
  const [second] = await node.call("Add", { containerId: "again", netns: names[1] ?? "", pod: "p0" });
  assert.notEqual(second, first);
  assert.match(node.ip("-o", "link", "show", name), /alias COIL:default:again:eth0/);
  assert.equal(node.attachments().length, 1);
  await node.call("Del", { containerId: "c0", netns: names[0] ?? "", pod: "p0" });
  assert.match(node.ip("-o", "link", "show", name), /alias COIL:default:again:eth0/);
  await node.call("Check", { containerId: "again", netns: names[1] ?? "", pod: "p0" });
  await node.call("Del", { containerId: "again", netns: names[1] ?? "", pod: "p0" });
  assert.deepEqual(node.attachments(), []);
  await until("the block goes back", async () => (await node.blocks()).length === 0);
});
