import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { installPlugin, isOfMultus, isOfSuite, isRival, pluginFiles, typesOf } from "./installer.ts";

test("isOfSuite: a list that names one of the suite's plugins, at any place; nothing else", () => {
  const list = (...types: readonly string[]): string =>
    JSON.stringify({ name: "n", plugins: types.map((type) => ({ type })) });
  assert.deepEqual([list("coil"), list("bridge", "vpc-alcor")].map(isOfSuite), [true, true]);
  assert.deepEqual([list("bridge"), list("coil-standalone"), list(), "", "{", '"coil"'].map(isOfSuite), [
    false,
    false,
    false,
    false,
    false,
    false,
  ]);
});

test("isOfSuite: answers for any file of others", () => {
  fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => typeof isOfSuite(text) === "boolean"));
  const plugins = fc.array(fc.oneof(fc.record({ type: fc.jsonValue() }), fc.jsonValue()));
  fc.assert(
    fc.property(fc.record({ name: fc.jsonValue(), plugins: fc.oneof(plugins, fc.jsonValue()) }), (list) => {
      assert.equal(typeof isOfSuite(JSON.stringify(list)), "boolean");
    }),
  );
});

test("isRival: what a runtime reads before our configuration, and every list; not ours, others' half-written files, folders", () => {
  const rivals = (names: string, isFolder = false): string =>
    names
      .split(" ")
      .filter((name) => isRival(name, "10-coil.conflist", isFolder))
      .join(" ");
  assert.equal(
    rivals("05-other.conf 05-a.json 10-a.json 05-x.conflist 20-x.conflist .05-x.conf .x.conflist"),
    "05-other.conf 05-a.json 10-a.json 05-x.conflist 20-x.conflist .05-x.conf .x.conflist",
  );
  assert.equal(rivals("20-old.conflist.bak"), "20-old.conflist.bak", "as Coil does");
  for (const name of [
    "10-coil.conflist",
    "05-x.conf.coil-disabled",
    "05-x.conflist.coil-disabled",
    ".05-vpc.conflist.123.tmp",
    ".05-vpc.conflist.swp",
    "99-loopback.conf",
    "10-d.json",
    "05-other.conf.bak",
    "calico-kubeconfig",
  ])
    assert.equal(rivals(name), "", name);
  assert.equal(rivals("00-whereabouts.conf", true), "");
});

test("isOfMultus: by the type alone, of any text", () => {
  assert.deepEqual(
    ['{"type":"multus"}', '{"type":"multus-shim"}', '{"type":"bridge"}', "null", "{", ""].map(isOfMultus),
    [true, true, false, false, false, false],
  );
  fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => typeof isOfMultus(text) === "boolean"));
});

test("typesOf: the plugins of lists, delegates and single configurations, of any text", () => {
  const nested = '{"plugins":[{"type":"a","delegate":{"plugins":[{"type":"b"},{"type":"c"}]}}]}';
  assert.deepEqual([nested, '{"type":"multus","delegates":[{"type":"d"}]}', "null", "{"].map(typesOf), [
    ["a", "b", "c"],
    ["multus", "d"],
    [],
    [],
  ]);
  fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => Array.isArray(typesOf(text))));
  assert.deepEqual(typesOf(`${'{"delegate":'.repeat(100)}{"type":"coil"}${"}".repeat(100)}`), []);
});

test("installPlugin: the standalone executable that a further executable runs comes with it, and before it", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-install-plugin-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const [from, binDir] = [join(folder, "from"), join(folder, "bin")];
  for (const one of [from, binDir]) mkdirSync(one);
  const plugin = join(from, "vpc-neutron");
  writeFileSync(plugin, "launcher", { mode: 0o755 });
  assert.deepEqual(await pluginFiles(plugin), [plugin]);
  assert.deepEqual([await installPlugin({ binDir }, plugin), readdirSync(binDir)], [true, ["vpc-neutron"]]);
  writeFileSync(`${plugin}-standalone`, "whole", { mode: 0o755 });
  assert.deepEqual(await pluginFiles(plugin), [`${plugin}-standalone`, plugin]);
  assert.equal(await installPlugin({ binDir }, plugin), true, "the launcher is there, its executable is not");
  assert.deepEqual(readdirSync(binDir), ["vpc-neutron", "vpc-neutron-standalone"]);
  assert.equal(await installPlugin({ binDir }, plugin), false);
});
