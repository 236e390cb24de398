import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { Dirty } from "#base/async";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { servedLately, servedPath } from "../cni-plugin/index.ts";
import { keepServedMark } from "./index.ts";

/** A daemon that can serve or not, on a clock that the test moves. */
function daemon(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-served-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const socket = join(folder, "coild.sock");
  // Any file will do: only which one it is counts.
  writeFileSync(socket, "");
  const clock = new FakeClock();
  const dirty = new Dirty(clock);
  const state = { canServe: false };
  const stop = new AbortController();
  const health = new Health({ clock });
  const part = health.part("served-mark");
  const running = keepServedMark(
    { socket, canServe: () => state.canServe, dirty, health: part, clock },
    { signal: stop.signal },
  );
  const end = async (): Promise<void> => {
    stop.abort();
    await running;
  };
  const seen = (): boolean => servedLately(socket, clock.now());
  return { socket, path: servedPath(socket), clock, dirty, state, health, end, seen };
}

test("keepServedMark: a daemon counts as there while it can serve, and for a minute after its last word", async (t) => {
  const { path, clock, dirty, state, end, seen } = daemon(t);
  await clock.advance(30_000);
  assert.deepEqual([seen(), existsSync(path)], [false, false], "it never could");
  state.canServe = true;
  dirty.mark("test");
  await clock.advance(0);
  assert.equal(seen(), true, "at once");
  assert.equal(statSync(path).mode & 0o777, 0o600);
  await clock.advance(600_000);
  assert.equal(seen(), true);
  state.canServe = false;
  await clock.advance(49_000);
  assert.equal(seen(), true);
  await clock.advance(12_000);
  assert.equal(seen(), false, "a daemon that runs and cannot serve is away");
  state.canServe = true;
  await end();
  assert.equal(seen(), true, "its end is its last word");
  clock.jumpWall(59_000);
  assert.equal(seen(), true);
  clock.jumpWall(2000);
  assert.equal(seen(), false);
});

test("servedLately: a clock that was set back does not make the time longer than twice, and far off it is not known", async (t) => {
  const { clock, state, end, seen } = daemon(t);
  state.canServe = true;
  await end();
  clock.jumpWall(-60_000);
  assert.equal(seen(), true);
  clock.jumpWall(-1000);
  assert.equal(seen(), false);
});

test("keepServedMark: a mark that cannot be set keeps no daemon from being ready, is told, and is set when it can be", async (t) => {
  const { path, clock, state, health, end, seen } = daemon(t);
  mkdirSync(path);
  state.canServe = true;
  await clock.advance(10_000);
  assert.match(JSON.stringify(health.parts), /cannot set the mark .*coild\.sock\.served: EISDIR/);
  assert.deepEqual(health.unready, []);
  rmdirSync(path);
  await clock.advance(20_000);
  assert.equal(seen(), true);
  await end();
});

test("keepServedMark: a daemon whose socket was removed, or is another's, is away after a minute, and says so", async (t) => {
  for (const after of ["removed", "replaced"] as const) {
    const { socket, clock, dirty, state, health, end, seen } = daemon(t);
    state.canServe = true;
    dirty.mark("test");
    await clock.advance(0);
    assert.equal(seen(), true);
    writeFileSync(`${socket}.other`, "");
    rmSync(socket);
    if (after === "replaced") renameSync(`${socket}.other`, socket);
    await clock.advance(61_000);
    assert.equal(seen(), false, after);
    assert.match(health.parts.map(({ reason }) => reason).join(), /coild\.sock was removed or replaced/);
    await end();
    assert.equal(seen(), false, after);
  }
});
