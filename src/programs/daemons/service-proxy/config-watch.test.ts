import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { createLogger } from "#base/log";
import { digestOf } from "../../shared/service-proxy-config/index.ts";
import { watchConfig } from "./config-watch.ts";

const TEXT = "kind: KubeProxyConfiguration\n";

/** A folder as kubelet makes one of a ConfigMap: the file is a link by way of `..data`, which is turned round as a whole. */
function setUp(t: TestContext, read = TEXT) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-config-watch-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "config.conf");
  const publish = (version: string, text: string): void => {
    mkdirSync(join(folder, version));
    writeFileSync(join(folder, version, "config.conf"), text);
    symlinkSync(version, join(folder, "..data_tmp"));
    renameSync(join(folder, "..data_tmp"), join(folder, "..data"));
  };
  publish("..1", TEXT);
  symlinkSync(join("..data", "config.conf"), path);
  const clock = new FakeClock();
  const lines: string[] = [];
  const log = createLogger({ name: "t", write: (line) => void lines.push(line) });
  const stop = new AbortController();
  let error: unknown;
  const ended = watchConfig({ path, digest: digestOf(read) }, { signal: stop.signal, log, clock }).catch((thrown) => {
    error = thrown;
  });
  t.after(async () => {
    stop.abort();
    await ended;
  });
  /** Returns the error with which it has ended a second later; `undefined`: it goes on. */
  const looked = async (): Promise<unknown> => {
    await clock.advance(1000);
    return error;
  };
  return { folder, path, publish, looked, lines };
}

test("watchConfig: ends if a ConfigMap switches to another content, not if it switches to the same", async (t) => {
  const { publish, looked } = setUp(t);
  publish("..2", TEXT);
  assert.equal(await looked(), undefined);
  publish("..3", `${TEXT}mode: nftables\n`);
  assert.match(String(await looked()), /ServiceProxyError: the configuration file .*config\.conf has changed/);
});

test("watchConfig: ends if the file is written in place or replaced by a rename, not if it is touched or missing for a while", async (t) => {
  for (const replace of [true, false]) {
    const { folder, path, looked, lines } = setUp(t);
    utimesSync(path, 1, 1);
    assert.equal(await looked(), undefined);
    rmSync(path);
    assert.equal(await looked(), undefined);
    assert.equal(await looked(), undefined);
    assert.equal(lines.filter((line) => line.includes("cannot be read; the last configuration")).length, 1);
    writeFileSync(path, TEXT);
    assert.equal(await looked(), undefined);
    const place = replace ? join(folder, "new") : path;
    writeFileSync(place, "other");
    if (replace) renameSync(place, path);
    assert.match(String(await looked()), /has changed/);
  }
});

test("watchConfig: a change between the reading at the start and the first check counts", async (t) => {
  const { looked } = setUp(t, "what was read");
  assert.match(String(await looked()), /has changed/);
});
