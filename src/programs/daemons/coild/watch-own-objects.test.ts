// own process: it replaces the timers of its process
import assert from "node:assert/strict";
import { test } from "node:test";
import { nullLogger } from "#base/log";
import { type KubeApi, KubeConfigError } from "#kube/client";
import { watchOwnObjects } from "./watch-own-objects.ts";

test("watchOwnObjects: credentials that cannot be had for a while are told, and end nothing", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const reads: string[] = [];
  const fail = async (what: string): Promise<never> => {
    reads.push(what);
    throw new KubeConfigError("exec-failed", "the plugin failed: no network");
  };
  const pages = { [Symbol.asyncIterator]: () => ({ next: () => fail("list") }) };
  const api = { listPages: () => pages, watch: () => pages, get: () => fail("get") } as unknown as KubeApi;
  const none = (): void => undefined;
  const ipam = { noteBlock: none, noteBlockGone: none, noteNode: none, noteApiReturn: none };
  const told: string[] = [];
  const health = { ok: none, degraded: (error: unknown) => void told.push(String(error)) };
  const stop = new AbortController();
  const watching = watchOwnObjects(
    { api, ipam, ownNode: { see: none }, nodeName: "node-1", health, log: nullLogger },
    { signal: stop.signal },
  );
  let end: unknown;
  watching.then(
    () => {
      end = "ended";
    },
    (error: unknown) => {
      end = error;
    },
  );
  for (let second = 0; second < 60; second += 1) {
    t.mock.timers.tick(1000);
    for (let turn = 0; turn < 5; turn += 1) await new Promise(setImmediate);
  }
  assert.equal(end, undefined);
  assert.ok(reads.filter((what) => what === "get").length > 1);
  assert.match(told.at(-1) ?? "", /no network/);
  stop.abort();
  await watching;
});
