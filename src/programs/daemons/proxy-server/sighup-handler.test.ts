import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { test } from "node:test";
import { SighupHandler } from "./sighup-handler.ts";

async function sendSighup(): Promise<void> {
  const came = once(process, "SIGHUP");
  process.kill(process.pid, "SIGHUP");
  await came;
}

test("SighupHandler: signals before the handler is set do not end the process and cause one call", async () => {
  const before = process.listenerCount("SIGHUP");
  let count = 0;
  {
    using sighup = new SighupHandler();
    await sendSighup();
    await sendSighup();
    sighup.handle(() => {
      count += 1;
    });
    assert.equal(count, 1);
    await sendSighup();
    assert.equal(count, 2);
  }
  assert.equal(process.listenerCount("SIGHUP"), before);
});

test("SighupHandler: a handler without a signal before is not called", () => {
  using sighup = new SighupHandler();
  sighup.handle(() => assert.fail("nothing has come"));
});

test("early: programs that read files again live through SIGHUP before they have begun; others end as ever", () => {
  const module = JSON.stringify(join(import.meta.dirname, "../../start/early.ts"));
  const script = `await import(${module}); process.kill(process.pid, "SIGHUP"); setTimeout(() => process.exit(7), 100);`;
  const endOf = (calledAs: string, ...args: string[]): number | string | null => {
    const env = { ...process.env, ISTHMUS_CALLED_AS: calledAs };
    const argv = ["--input-type=module", "--eval", script, "--", "program", ...args];
    const { status, signal } = spawnSync(process.execPath, argv, { env });
    return signal ?? status;
  };
  assert.deepEqual([endOf("proxy-server"), endOf("sni-router")], [7, 7]);
  assert.deepEqual([endOf("proxy-agent"), endOf("lab")], ["SIGHUP", "SIGHUP"]);
});
