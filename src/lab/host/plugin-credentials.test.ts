import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { KubeConfigError, type KubeConnection, type KubeCredentials, staticConnection } from "#kube/client";
import { keepPluginCredentials } from "./plugin-credentials.ts";

const FAILED = new KubeConfigError("exec-failed", "the plugin has no session");

/** A connection whose plugin gives what the test says, and the files of its credentials. */
async function open(t: TestContext, first: KubeCredentials | KubeConfigError) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-plugin-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const clock = new FakeClock();
  let now = first;
  const connection: KubeConnection = {
    ...staticConnection({ server: "https://127.0.0.1:1" }),
    credentials: async () => {
      if (now instanceof KubeConfigError) throw now;
      return now;
    },
  };
  const kept = await keepPluginCredentials({ connection, log: nullLogger, clock }, folder);
  t.after(() => kept[Symbol.asyncDispose]());
  return {
    clock,
    user: kept.user,
    give: (next: KubeCredentials | KubeConfigError) => {
      now = next;
    },
    read: (field: string) => readFileSync(kept.user[field] ?? assert.fail(`no ${field}`), "utf8"),
  };
}

test("keepPluginCredentials: a renewed token is in the file, also after failures", async (t) => {
  const { clock, user, give, read } = await open(t, { headers: { authorization: "Bearer one" } });
  assert.deepEqual([Object.keys(user), read("tokenFile")], [["tokenFile"], "one"]);
  give(FAILED);
  await clock.advance(60_000);
  assert.equal(read("tokenFile"), "one");
  give({ headers: { authorization: "Bearer two", "impersonate-user": "x" } });
  await clock.advance(30_000);
  assert.equal(read("tokenFile"), "two");
  give({ headers: { authorization: "Bearer three" } });
  await clock.advance(2_000);
  assert.equal(read("tokenFile"), "three");
});

test("keepPluginCredentials: a certificate has files of its own", async (t) => {
  const { clock, user, give, read } = await open(t, { headers: {}, cert: "CERT 1", key: "KEY 1" });
  assert.deepEqual(Object.keys(user), ["client-certificate", "client-key"]);
  give({ headers: {}, cert: "CERT 2", key: "KEY 2" });
  await clock.advance(2_000);
  assert.deepEqual([read("client-certificate"), read("client-key")], ["CERT 2", "KEY 2"]);
});

test("keepPluginCredentials: a plugin that fails at first is told", async (t) => {
  await assert.rejects(open(t, FAILED), FAILED);
});
