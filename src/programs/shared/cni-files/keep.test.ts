import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { sleep } from "#base/async";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { createLogger } from "#base/log";
import type { EventInput } from "#kube/events";
import { CNI_FILES_REMOVED, keepCniFiles } from "./keep.ts";

const CONFLIST = '{"name":"n","plugins":[{"type":"coil"}]}';

/** A daemon that keeps the files of an environment. */
function daemon(t: TestContext, change: (root: string) => NodeJS.ProcessEnv) {
  const root = mkdtempSync(join(tmpdir(), "isthmus-files-"));
  t.after(() => rmSync(root, { recursive: true }));
  for (const name of ["net.d", "bin"]) mkdirSync(join(root, name));
  writeFileSync(join(root, "coil"), "#!/bin/sh\n");
  chmodSync(join(root, "coil"), 0o755);
  const clock = new FakeClock();
  const health = new Health({ clock });
  const events: EventInput[] = [];
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => lines.push(line) });
  const stop = new AbortController();
  const env = {
    ...{ CNI_NETCONF: CONFLIST, COIL_PATH: join(root, "coil") },
    ...{ CNI_ETC_DIR: join(root, "net.d"), CNI_BIN_DIR: join(root, "bin") },
    ...change(root),
  };
  const running = keepCniFiles(
    { env, nodeName: "n1", events: { record: (event) => void events.push(event) }, health, log, clock },
    { signal: stop.signal },
  );
  running.catch(() => undefined);
  /** Moves the clock until the condition holds: files are written between its steps. */
  const until = async (holds: () => boolean, what: string): Promise<void> => {
    for (let step = 0; step < 2000 && !holds(); step += 1) {
      await clock.advance(100);
      // Files are written by other threads, which a busy machine delays.
      await sleep(1);
    }
    assert.ok(holds(), what);
  };
  const end = async (): Promise<void> => {
    stop.abort();
    await running;
  };
  return { root, conf: join(root, "net.d/10-coil.conflist"), clock, health, events, lines, running, until, end };
}

test("keepCniFiles: what is removed is back, and after the third time the program is not ready and the Node has an event", async (t) => {
  const { conf, health, events, until, end, clock } = daemon(t, () => ({}));
  await until(() => existsSync(conf) && health.unready.length === 0, "installed");
  assert.equal(readFileSync(conf, "utf8"), CONFLIST);
  await clock.advance(600_000);
  for (let times = 0; times < 3; times += 1) {
    rmSync(conf);
    await until(() => existsSync(conf), `back after removal ${times + 1}`);
  }
  rmSync(conf);
  await until(() => health.unready.length > 0, "not ready");
  assert.deepEqual([existsSync(conf), health.unready[0]?.name], [false, "cni-files"]);
  assert.match(health.unready[0]?.reason ?? "", /10-coil\.conflist: removed by another program/);
  assert.deepEqual(
    events.map(({ reason, regarding }) => [reason, regarding.kind, regarding.name]),
    [[CNI_FILES_REMOVED, "Node", "n1"]],
  );
  writeFileSync(conf, CONFLIST);
  await until(() => health.unready.length === 0, "ready again");
  await end();
  rmSync(conf);
  await clock.advance(60_000);
  assert.equal(existsSync(conf), false, "a program that has ended, as uninstall wants it, puts nothing back");
});

test("keepCniFiles: without a configuration in the environment, or without the folders, it says so once, and the program is ready", async (t) => {
  for (const [change, text] of [
    [() => ({ CNI_NETCONF: "" }), /neither CNI_NETCONF nor CNI_NETCONF_FILE is set/],
    [(root: string) => ({ CNI_ETC_DIR: join(root, "none") }), /none is not there; mount the node's folder/],
  ] as const) {
    const { clock, lines, health, end } = daemon(t, change);
    await clock.advance(60_000);
    assert.equal(lines.filter((line) => text.test(line)).length, 1);
    assert.deepEqual(health.parts, []);
    await end();
  }
});

test("keepCniFiles: wrong variables are named", async (t) => {
  const { running } = daemon(t, () => ({ CNI_CONF_NAME: "../x" }));
  await assert.rejects(running, /CNI_CONF_NAME is "\.\.\/x"/);
});
