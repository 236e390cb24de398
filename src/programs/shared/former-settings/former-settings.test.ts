import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { FakeKernel } from "#kernel/fake";
import { FORWARDING_KEYS, formerSettingsPath, readFormerSettings, recordFormerSettings } from "./former-settings.ts";

function pathOf(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-former-"));
  t.after(() => rmSync(folder, { recursive: true }));
  return formerSettingsPath(join(folder, "coild.sock"));
}

test("recordFormerSettings: the values before the first start stay recorded", (t) => {
  const path = pathOf(t);
  const kernel = new FakeKernel();
  using netns = kernel.createNetNs("node");
  using stack = kernel.openStack(netns);
  assert.deepEqual(readFormerSettings(path), {});
  stack.sysctl.set("net/ipv4/ip_forward", 0);
  const v6 = stack.sysctl.get("net/ipv6/conf/all/forwarding");
  recordFormerSettings(path, stack.sysctl, FORWARDING_KEYS);
  stack.sysctl.set("net/ipv4/ip_forward", 1);
  recordFormerSettings(path, stack.sysctl, FORWARDING_KEYS);
  const first = { "net/ipv4/ip_forward": "0", "net/ipv6/conf/all/forwarding": v6 };
  assert.deepEqual(readFormerSettings(path), first);
  // A later start changes more.
  stack.links.create({ kind: "bridge", name: "eth0.5" });
  const acceptRa = "net/ipv6/conf/eth0.5/accept_ra";
  recordFormerSettings(path, stack.sysctl, [...FORWARDING_KEYS, acceptRa, "net/ipv6/conf/gone/accept_ra"]);
  stack.sysctl.set(acceptRa, 2);
  recordFormerSettings(path, stack.sysctl, [acceptRa]);
  assert.deepEqual(readFormerSettings(path), { ...first, [acceptRa]: "1" });
});

test("readFormerSettings: of any text only the values of settings that coild changes come", (t) => {
  const path = pathOf(t);
  writeFileSync(
    path,
    '{"net/ipv4/ip_forward":"0","kernel/panic":"1","net/ipv6/conf/all/forwarding":"yes","net/ipv6/conf/../accept_ra":"1","net/ipv6/conf/eth0/accept_ra":"3"}',
  );
  assert.deepEqual(readFormerSettings(path), { "net/ipv4/ip_forward": "0" });
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json()), (text) => {
      writeFileSync(path, text);
      for (const value of Object.values(readFormerSettings(path))) assert.match(value, /^[012]$/);
    }),
    { numRuns: 100 },
  );
});
