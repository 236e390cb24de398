import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { Hangups } from "./hangups.ts";

async function hangup(): Promise<void> {
  const came = once(process, "SIGHUP");
  process.kill(process.pid, "SIGHUP");
  await came;
}

test("Hangups: signals before there is a handler do not end the process and are made up for once", async () => {
  const before = process.listenerCount("SIGHUP");
  let count = 0;
  {
    using hangups = new Hangups();
    await hangup();
    await hangup();
    hangups.handle(() => {
      count += 1;
    });
    assert.equal(count, 1);
    await hangup();
    assert.equal(count, 2);
  }
  assert.equal(process.listenerCount("SIGHUP"), before);
});

test("Hangups: a handler without a signal before is not called", () => {
  using hangups = new Hangups();
  hangups.handle(() => assert.fail("nothing has come"));
});
