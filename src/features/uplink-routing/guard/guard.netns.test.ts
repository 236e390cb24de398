import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createServer } from "node:net";
import { type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { IpAddress } from "#base/ip";
import { createLogger } from "#base/log";
import { parseSettings } from "#features/uplink-config";
import { openNft } from "#kernel/nft";
import { listenTcp } from "#kernel/socket";
import { Bed } from "#test/uplink-wan-bed";
import { readKernel } from "../state/index.ts";
import type { Anchored } from "./anchor-plan.ts";
import { Anchors, clearPortGuard, flushAnchors, GUARD_TABLE, syncPortGuard, wantedGuard } from "./index.ts";

const run = promisify(execFile);

async function setUp(t: TestContext) {
  const bed = await Bed.create({ pod: true });
  t.after(() => bed[Symbol.asyncDispose]());
  const nft = openNft(bed.netns);
  t.after(() => nft[Symbol.dispose]());
  const { settings } = parseSettings(JSON.stringify({ version: 1, uplinks: bed.uplinkEntries }), "test");
  return { bed, nft, settings };
}

test("port guard: nobody reaches the listeners' port over an uplink, in either family; others and lo do", async (t) => {
  const { bed, nft, settings } = await setUp(t);
  for (const address of ["192.0.2.10", "2001:db8:1::10", "10.42.0.1", "127.0.0.1"]) {
    const server = createServer((socket) => void socket.end("in\n"));
    server.listen({ fd: listenTcp(IpAddress.parse(address), 5443, { netns: bed.netns }) });
    t.after(() => server.close());
  }
  const reaches = async (netns: string | undefined, address: string): Promise<boolean> => {
    const command = `exec 3<>/dev/tcp/${address}/5443; cat <&3`;
    const args = [`--net=${netns}`, "timeout", "0.5", "bash", "-c", command];
    return run("nsenter", args).then(
      ({ stdout }) => stdout === "in\n",
      () => false,
    );
  };
  const [wan, node, pod] = [bed.wan0.netns.path, bed.netns.path, bed.pod?.path];
  assert.ok(await reaches(wan, "192.0.2.10"));
  assert.ok(await reaches(wan, "2001:db8:1::10"));
  assert.equal(syncPortGuard(nft, wantedGuard(settings)), 1);
  assert.equal(syncPortGuard(nft, wantedGuard(settings)), 0);
  assert.ok(!(await reaches(wan, "192.0.2.10")));
  assert.ok(!(await reaches(wan, "2001:db8:1::10")));
  assert.ok(await reaches(node, "127.0.0.1"));
  assert.ok(await reaches(node, "192.0.2.10"), "over lo, whatever the address");
  assert.ok(await reaches(pod, "10.42.0.1"));
  assert.deepEqual(
    nft.listRules(GUARD_TABLE, "input").map(({ rule, comment }) => [rule, comment]),
    [
      ['iifname "eth0" tcp dport 5443 drop', "Block mgmtproxy port on eth0"],
      ['iifname "eth1" tcp dport 5443 drop', "Block mgmtproxy port on eth1"],
    ],
  );
  assert.equal(clearPortGuard(nft), 1);
  assert.equal(clearPortGuard(nft), 0);
  assert.ok(await reaches(wan, "192.0.2.10"));
});

test("port guard: a table that somebody emptied or changed is put right; without uplinks there is none", async (t) => {
  const { bed, nft, settings } = await setUp(t);
  syncPortGuard(nft, wantedGuard(settings));
  bed.run("nft", "flush", "table", "inet", "uplink_guard");
  assert.equal(syncPortGuard(nft, wantedGuard(settings)), 1);
  bed.run("nft", "delete", "chain", "inet", "uplink_guard", "input");
  assert.equal(syncPortGuard(nft, wantedGuard(settings)), 1);
  assert.equal(syncPortGuard(nft, wantedGuard(settings)), 0);
  assert.equal(syncPortGuard(nft, wantedGuard({ ...settings, uplinks: [] })), 1);
  assert.deepEqual(nft.listTables(), []);
});

test("anchors: a missing bridge is waited for, an existing address is left, and one of ours is removed, also by the next run", async (t) => {
  const { bed } = await setUp(t);
  const lines: string[] = [];
  const log = createLogger({ name: "test", write: (line) => void lines.push(JSON.parse(line).msg) });
  const { settings } = parseSettings(JSON.stringify({ version: 1, listeners: [{ role: "pod" }] }), "test");
  const [listener] = settings.listeners;
  assert.ok(listener !== undefined);
  const sync = (anchors: Anchors, ...listeners: readonly Anchored[]): number =>
    anchors.plan(readKernel(bed.stack), listeners).reduce((sum, apply) => sum + apply(), 0);
  const flush = (): number =>
    flushAnchors(bed.stack, readKernel(bed.stack), [listener]).reduce((sum, apply) => sum + apply(), 0);
  const shown = (): string => bed.run("ip", "-o", "address", "show", "dev", "cni0");
  const first = new Anchors(bed.stack, { log });
  assert.equal(sync(first, { ...listener, interface: "cni9" }), 0);
  assert.equal(sync(first, { ...listener, assignAddress: false }), 0);
  assert.deepEqual(lines, []);
  assert.equal(sync(first, listener), 1);
  assert.equal(sync(first, listener), 0);
  assert.deepEqual(lines, ["mgmtproxy: assigned 169.254.100.1/32 to cni0"]);
  assert.match(shown(), /inet 169\.254\.100\.1\/32 scope global cni0/);
  // As after kill -9: nobody remembers, and the kernel tells.
  const second = new Anchors(bed.stack, { log });
  assert.equal(sync(second, listener), 0);
  const six = { ...listener, address: IpAddress.parse("fd00:100::1") };
  assert.equal(sync(second, six), 2);
  assert.doesNotMatch(shown(), /169\.254\.100\.1/);
  assert.match(shown(), /fd00:100::1\/128/);
  assert.equal(flush(), 1);
  assert.equal(flush(), 0);
  // Somebody else's stays, whatever comes and goes.
  bed.run("ip", "address", "add", "169.254.100.1/32", "dev", "cni0");
  const third = new Anchors(bed.stack, { log });
  assert.deepEqual([sync(third, listener), sync(third), flush()], [0, 0, 0]);
  assert.match(shown(), /169\.254\.100\.1/);
});
