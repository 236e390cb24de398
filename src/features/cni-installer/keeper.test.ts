import assert from "node:assert/strict";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { createLogger } from "#base/log";
import { CniKeeper } from "./keeper.ts";

const CONFLIST = '{"name":"n","plugins":[{"type":"coil"}]}';

/** A node whose files are installed, and the keeper of these. */
async function node(t: TestContext) {
  const root = mkdtempSync(join(tmpdir(), "isthmus-keeper-"));
  t.after(() => rmSync(root, { recursive: true }));
  const [etcDir, binDir, image] = ["net.d", "bin", "image"].map((name) => {
    mkdirSync(join(root, name));
    return join(root, name);
  }) as [string, string, string];
  for (const name of ["coil", "vpc-neutron", "vpc-neutron-standalone"])
    writeFileSync(join(image, name), `#!/bin/sh\n# ${name}\n`);
  const installation = {
    ...{ confName: "10-coil.conflist", etcDir, binDir, removeOthers: false },
    ...{ binary: join(image, "coil"), plugins: [join(image, "vpc-neutron")] },
  };
  const clock = new FakeClock();
  const left: string[] = [];
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => lines.push(line) });
  const keeper = new CniKeeper({ installation, onLeft: (why) => left.push(why), log, clock }, CONFLIST);
  const files = [
    ...["coil", "vpc-neutron", "vpc-neutron-standalone"].map((name) => join(binDir, name)),
    join(etcDir, "10-coil.conflist"),
  ];
  assert.equal(await keeper.sync(), 4);
  return { keeper, clock, etcDir, binDir, files, left, lines };
}

test("CniKeeper: puts back a configuration or executable that is removed, emptied or cannot be executed, and touches no other file", async (t) => {
  const { keeper, clock, etcDir, files, left } = await node(t);
  for (const harm of [
    (path: string) => rmSync(path),
    (path: string) => writeFileSync(path, ""),
    (path: string) => renameSync(path, `${path}.cilium_bak`),
  ])
    for (const path of files) {
      await clock.advance(600_000);
      harm(path);
      assert.equal(await keeper.sync(), 1);
      assert.ok(statSync(path).size > 0, path);
    }
  const [coil = "", , , conf = ""] = files;
  await clock.advance(600_000);
  chmodSync(coil, 0o644);
  assert.equal(await keeper.sync(), 1);
  assert.equal(statSync(coil).mode & 0o777, 0o755);
  // What somebody writes is theirs.
  writeFileSync(conf, '{"name":"edited","plugins":[{"type":"coil"}]}');
  writeFileSync(join(etcDir, "05-other.conflist"), '{"name":"o","plugins":[{"type":"bridge"}]}');
  assert.equal(await keeper.sync(), 0);
  assert.deepEqual(left, []);
});

test("CniKeeper: after three times within ten minutes files stay missing, which names the first configuration, until somebody else puts them back", async (t) => {
  const { keeper, clock, etcDir, files, left, lines } = await node(t);
  const conf = files.at(-1) ?? assert.fail();
  await clock.advance(600_000);
  for (let times = 0; times < 3; times += 1) {
    await clock.advance(1000);
    rmSync(conf);
    assert.equal(await keeper.sync(), 1);
  }
  renameSync(conf, `${conf}.cilium_bak`);
  writeFileSync(join(etcDir, "05-cilium.conflist"), '{"name":"c","plugins":[{"type":"cilium-cni"}]}');
  const removed = { code: "removed", message: /10-coil\.conflist: removed .* 05-cilium\.conflist \(cilium-cni\)/ };
  for (const waitMs of [0, 1000, 3_600_000]) {
    await clock.advance(waitMs);
    await assert.rejects(keeper.sync(), removed);
    assert.equal(existsSync(conf), false);
  }
  assert.equal(left.length, 1);
  assert.equal(lines.filter((line) => /not put back any more/.test(line)).length, 1);
  writeFileSync(conf, CONFLIST);
  assert.equal(await keeper.sync(), 0);
  rmSync(conf);
  assert.equal(await keeper.sync(), 1, "the ten minutes are over");
});

test("CniKeeper: a configuration that another installation of the suite, or Multus, has put under another name is not missing", async (t) => {
  const { keeper, clock, etcDir, files } = await node(t);
  const conf = files.at(-1) ?? assert.fail();
  for (const [name, text] of [
    ["05-vpc.conflist", '{"name":"n","plugins":[{"type":"vpc-neutron","delegate":{"type":"coil"}}]}'],
    ["00-multus.conf", `{"name":"m","type":"multus","delegates":[${CONFLIST}]}`],
  ] as const) {
    await clock.advance(600_000);
    writeFileSync(join(etcDir, name), text);
    rmSync(conf, { force: true });
    assert.equal(await keeper.sync(), 0, name);
    rmSync(join(etcDir, name));
    assert.equal(await keeper.sync(), 1, name);
  }
});

test("CniKeeper: a folder that is gone, or an executable that the image lacks, is a failure with its path", async (t) => {
  const { keeper, etcDir, binDir, files } = await node(t);
  rmSync(etcDir, { recursive: true });
  await assert.rejects(keeper.sync(), { code: "cannot-install", message: new RegExp(basename(etcDir)) });
  mkdirSync(etcDir);
  assert.equal(await keeper.sync(), 1);
  rmSync(files[0] ?? "");
  rmSync(join(binDir, "../image/coil"));
  await assert.rejects(keeper.sync(), { code: "cannot-install", message: /image\/coil/ });
  assert.deepEqual(readdirSync(etcDir), ["10-coil.conflist"]);
});
