import assert from "node:assert/strict";
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { type TestContext, test } from "node:test";
import { nullLogger } from "#base/log";
import { LabError, labPaths, runHost } from "#lab/host";
import { ISTHMUS, leftOf, removeLab } from "#test/lab";

const LAB = `st${process.pid}`;
const TIMEOUT = { timeout: 60_000 };

/** The error with which the host process of a lab of one node ends; nothing of the lab is left then but a log. */
async function failedStart(
  t: TestContext,
  { coildFlags, startMs }: { readonly coildFlags: readonly string[]; readonly startMs: number },
): Promise<LabError> {
  const lab = LAB;
  const stop = new AbortController();
  t.after(async () => {
    stop.abort();
    await removeLab(lab);
    rmSync(labPaths(lab).failedLog, { force: true });
  });
  const events: string[] = [];
  const running = runHost(
    {
      log: nullLogger,
      tell: ({ event }) => events.push(event),
      switches: Readable.from([]),
    },
    {
      ...{ lab, nodes: 1, families: "dual", kubeconfig: undefined, image: undefined, upgrade: undefined },
      ...{ tunnel: false, uplinks: false, services: false, egress: false, chained: false, vpc: false },
      vpcDriver: "openvswitch",
      isthmus: [ISTHMUS],
      cniExecutable: join(ISTHMUS, "../cni/coil"),
      coildFlags,
      startMs,
    },
    stop,
  );
  const error: unknown = await running.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof LabError, String(error));
  assert.equal(error.code, "start-failed");
  assert.ok(!events.includes("ready"));
  assert.deepEqual(leftOf(lab), []);
  return error;
}

test("lab: a program that ends at its start ends the lab, with its last words", TIMEOUT, async (t) => {
  const { message } = await failedStart(t, { coildFlags: ["--no-such-flag"], startMs: 60_000 });
  const [first = "", ...rest] = message.split("\n  ");
  const how =
    /^coild-node1 has ended 3 times, with exit code 2; the end of the log of coild-node1, which is kept in (\S+):$/;
  const path = how.exec(first)?.[1];
  assert.ok(path !== undefined, message);
  assert.match(rest.join("\n"), /--no-such-flag/);
  assert.ok(readFileSync(path, "utf8").trimEnd().endsWith(rest.join("\n")));
});

test("lab: a program that does not serve ends the lab after the deadline", TIMEOUT, async (t) => {
  const elsewhere = join(labPaths(LAB).dir, "elsewhere.sock");
  const { message } = await failedStart(t, { coildFlags: [`--socket=${elsewhere}`], startMs: 3000 });
  assert.match(
    message,
    /^node1 is not ready after 3 s: the end of the log of coild-node1, which is kept in (\S+):\n {2}\S/,
  );
});
