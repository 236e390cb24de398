import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { LOOK_MS } from "#base/file";
import { createLogger } from "#base/log";
import { SettingsFile } from "./index.ts";

function setUp(t: TestContext, first?: string) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-settings-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "etc", "uplinks.yaml");
  mkdirSync(join(folder, "etc"));
  if (first !== undefined) writeFileSync(path, first);
  const clock = new FakeClock();
  const lines: Record<string, unknown>[] = [];
  const log = createLogger({ name: "config", write: (line) => void lines.push(JSON.parse(line)) });
  const file = new SettingsFile({ log, clock }, { path });
  const controller = new AbortController();
  const running = file.run({ signal: controller.signal });
  t.after(async () => {
    controller.abort();
    await running;
  });
  let reported = 0;
  file.onChange(() => {
    reported += 1;
  });
  return { folder, path, clock, file, lines, reported: () => reported };
}

test("SettingsFile: a file that is written, replaced by a rename, or reached by a link that is turned round, is read", async (t) => {
  const { folder, path, clock, file, reported } = setUp(t, "version: 1\nmaxCost: 1\n");
  assert.deepEqual([file.current.ready, file.current.settings.maxCost, file.current.error], [true, 1, undefined]);
  writeFileSync(path, "version: 1\nmaxCost: 22\n");
  await clock.advance(1000);
  assert.equal(file.current.settings.maxCost, 22);
  writeFileSync(`${path}.new`, "version: 1\nmaxCost: 33\n");
  renameSync(`${path}.new`, path);
  await clock.advance(1000);
  assert.equal(file.current.settings.maxCost, 33);
  for (const cost of [44, 55]) {
    writeFileSync(join(folder, `${cost}`), `version: 1\nmaxCost: ${cost}\n`);
    symlinkSync(join(folder, `${cost}`), `${path}.link`);
    renameSync(`${path}.link`, path);
    await clock.advance(1000);
    assert.equal(file.current.settings.maxCost, cost);
  }
  await clock.advance(60_000);
  assert.equal(reported(), 4, "nothing is reported while nothing changes");
});

test("SettingsFile: a file that is wrong, gone, too large or no file changes nothing but the error, and mending it clears that", async (t) => {
  const { path, clock, file } = setUp(t, "version: 1\nmaxCost: 1\n");
  for (const [spoil, error] of [
    [() => writeFileSync(path, "version: 1\nmaxcost: 2\n"), /maxcost: is not a known key/],
    [() => rmSync(path), /cannot read .*ENOENT/],
    [() => writeFileSync(path, " ".repeat(2 << 20)), /more than 1048576 bytes/],
    [
      () => {
        rmSync(path);
        mkdirSync(path);
      },
      /it is not a file/,
    ],
    [
      () => {
        rmSync(path, { recursive: true });
        // Nobody writes to it: a read that waits would never end.
        execFileSync("mkfifo", [path]);
      },
      /it is not a file/,
    ],
  ] as const) {
    spoil();
    await clock.advance(1000);
    assert.match(file.current.error ?? "", error);
    assert.deepEqual([file.current.ready, file.current.settings.maxCost], [true, 1]);
  }
  rmSync(path, { recursive: true });
  writeFileSync(path, "version: 1\nmaxCost: 6\n");
  await clock.advance(1000);
  assert.deepEqual([file.current.error, file.current.settings.maxCost], [undefined, 6]);
});

test("SettingsFile: without a file nothing is ready, and it comes to be when there is one", async (t) => {
  const { path, clock, file } = setUp(t);
  assert.equal(file.current.ready, false);
  assert.match(file.current.error ?? "", /ENOENT/);
  writeFileSync(path, "version: 1\n");
  await clock.advance(1000);
  assert.deepEqual([file.current.ready, file.current.error], [true, undefined]);
});

test("SettingsFile: an uplink that is refused is reported of as an error, though the rest is in force; reload reads at once", async (t) => {
  const { path, file, lines, reported } = setUp(t, "version: 1\n");
  writeFileSync(path, "version: 1\nuplinks:\n  - { name: a, interface: eth0 }\n  - { name: b, interface: eth0 }\n");
  file.reload();
  assert.equal(reported(), 1);
  assert.deepEqual(
    file.current.settings.uplinks.map(({ name }) => name),
    ["a"],
  );
  assert.match(file.current.error ?? "", /^uplink b is ignored/);
  assert.ok(lines.some(({ level, msg }) => level === "error" && msg === "uplink refused"));
});

test("SettingsFile: a write that was cut off is not adopted though the rest is valid; a rename or SIGHUP adopts it", async (t) => {
  const whole =
    "version: 1\nmaxCost: 7\nuplinks:\n  - { name: a, interface: eth0 }\n  - { name: b, interface: eth1 }\n";
  const { path, clock, file } = setUp(t, whole);
  const names = () => file.current.settings.uplinks.map(({ name }) => name);
  for (const left of ["", "version: 1\n", whole.slice(0, whole.indexOf("  - { name: b"))]) {
    writeFileSync(path, left);
    await clock.advance(60_000);
    assert.deepEqual([names(), file.current.settings.maxCost], [["a", "b"], 7]);
    assert.match(file.current.error ?? "", left === "" ? /./ : /written in place and is shorter/);
  }
  // The rest comes, piece by piece.
  writeFileSync(path, `${whole}  - { name: c, interface: eth2 }\n`);
  await clock.advance(LOOK_MS);
  writeFileSync(path, `${whole}  - { name: c, interface: eth2 }\n  - { name: d, interface: eth3 }\n`);
  await clock.advance(1000);
  assert.deepEqual([names(), file.current.error], [["a", "b", "c", "d"], undefined]);
  writeFileSync(path, "version: 1\n");
  file.reload();
  assert.deepEqual([names(), file.current.error], [[], undefined]);
});
