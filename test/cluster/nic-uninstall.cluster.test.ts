/** `isthmus uninstall` on a node that has lost its power: devices and sandboxes are gone, the journal and the database of Open vSwitch are not. */
import assert from "node:assert/strict";
import { cpSync, existsSync, linkSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { ISTHMUS, start } from "#test/lab";
import { NicNode, nicState } from "#test/nic-node";
import { skipWithoutOvs } from "#test/ovs-bed";

test("uninstall: ports of sandboxes that are gone are removed from Open vSwitch, and nothing is while it does not answer", {
  skip: skipWithoutOvs,
}, async () => {
  await using node = await NicNode.open("nicgone");
  node.activatePlugged();
  const pod = await node.createClaim("web", [nicState(0x61), nicState(0x62, { name: "eth1", net: 62 })]);
  const sandbox = node.makeSandbox("web");
  assert.equal((await node.cni("ADD", { pod, sandbox })).exit, 0);
  await node.killAgent();
  // The files of the node, as a loss of power leaves them.
  const root = join(node.folder, "root");
  const state = join(root, "var/lib/isthmus");
  const socket = join(root, node.ovs.socketPath);
  cpSync(join(node.stateDir, "cni"), join(state, "cni"), { recursive: true });
  for (const folder of [
    dirname(socket),
    join(root, "run/netns"),
    join(root, "etc/cni/net.d"),
    join(root, "opt/cni/bin"),
  ])
    mkdirSync(folder, { recursive: true });
  const uninstall = () => start(node.inside(ISTHMUS, "uninstall", `--root=${root}`)).ended;
  const used = await uninstall();
  assert.match(used.stdout, /refused: pods have \d devices of NICs/);
  node.removeSandbox(sandbox);
  for (let [name] = node.devices(); name !== undefined; [name] = node.devices()) node.ip(["link", "delete", name]);
  const away = await uninstall();
  assert.equal(away.code, 1);
  assert.match(away.stdout, /failed: remove NICs eth0, eth1 of container \S+: .*db\.sock/);
  assert.match(away.stdout, /nothing more was removed/);
  assert.equal(node.ovs.devices().length, 2);
  assert.ok(existsSync(state));
  linkSync(node.ovs.socketPath, socket);
  const { code, stdout } = await uninstall();
  assert.match(
    stdout,
    /done: remove NICs eth0, eth1 of container \S+ {2}\(nic-agent's, by its journal; the sandbox is gone\)/,
  );
  assert.equal(code, 0, stdout);
  assert.deepEqual([node.ovs.devices(), existsSync(state)], [[], false]);
});
