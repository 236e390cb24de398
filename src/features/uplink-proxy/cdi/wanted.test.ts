import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import type { ListenerSettings } from "#base/uplink-model";
import { PodAccess } from "../pods/index.ts";
import { hostListener, settingsOf } from "../testing/proxy-fixtures.ts";
import { type CdiWanted, cdiWanted } from "./index.ts";

/** The wanted CDI object of a pod listener, and the token. */
async function wantedFor(
  t: TestContext,
  port: number,
  fields: Partial<ListenerSettings>,
): Promise<{ readonly wanted: CdiWanted; readonly token: string }> {
  const dir = mkdtempSync(join(tmpdir(), "uplink-pod-access-"));
  t.after(() => rmSync(dir, { recursive: true }));
  const listener = hostListener(port, { role: "pod", name: "pods", auth: "token", tls: "optional", ...fields });
  const settings = settingsOf({ listeners: [listener] });
  const deps = {
    clock: new FakeClock(),
    log: nullLogger,
    clusterSecret: async () => ({ kind: "standalone" }) as const,
  };
  const pods = new PodAccess(deps, { dir, settings: () => settings });
  const stop = new AbortController();
  const done = pods.run({ signal: stop.signal });
  while (pods.tokens === undefined) await new Promise((resolve) => setImmediate(resolve));
  stop.abort();
  await done;
  const wanted = cdiWanted(settings, pods);
  assert.ok(wanted !== undefined);
  return { wanted, token: pods.tokens[0] ?? "" };
}

test("cdiWanted: the URL for importers has brackets around IPv6, and always its port", async (t) => {
  const address = IpAddress.parse("fd00::1");
  const six = await wantedFor(t, 5443, { address });
  assert.equal(six.wanted.proxy.HTTPSProxy, `https://cdi:${six.token}@[fd00::1]:5443`);
  assert.equal(new URL(six.wanted.proxy.HTTPSProxy).hostname, "[fd00::1]");
  const open = await wantedFor(t, 5443, { address, auth: "none", tls: "off" });
  assert.deepEqual(open.wanted, { proxy: { ...open.wanted.proxy, HTTPSProxy: "http://[fd00::1]:5443" } });
  for (const port of [80, 443]) {
    const four = await wantedFor(t, port, { address: IpAddress.parse("169.254.100.1") });
    assert.equal(four.wanted.proxy.HTTPSProxy, `https://cdi:${four.token}@169.254.100.1:${port}`);
  }
});

test("cdiWanted: a listener without TLS has a URL without TLS, with a token too", async (t) => {
  const { wanted, token } = await wantedFor(t, 80, { address: IpAddress.parse("169.254.100.1"), tls: "off" });
  assert.equal(wanted.proxy.HTTPSProxy, `http://cdi:${token}@169.254.100.1:80`);
  assert.deepEqual([wanted.caPem, wanted.proxy.trustedCAProxy], [undefined, undefined]);
  const secure = await wantedFor(t, 5443, { auth: "none", tls: "required" });
  assert.match(secure.wanted.proxy.HTTPSProxy, /^https:/);
  assert.equal(secure.wanted.proxy.trustedCAProxy, "mgmtproxy-ca");
  assert.match(secure.wanted.caPem ?? "", /BEGIN CERTIFICATE/);
});
