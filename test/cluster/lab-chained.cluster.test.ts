/** A chain of plugins as shipped: coil behind Debian's ptp in a lab. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import type { LabReport } from "#lab/scenario";
import { isthmus, leftOf, removeLab } from "#test/lab";

const LAB = "ct-chained";
after(async () => removeLab(LAB));

for (const [family, families] of [
  ["dual", ["ipv4", "ipv6"]],
  ["ipv4", ["ipv4"]],
] as const) {
  test(`lab: --chained --families=${family} runs the default scenario with coil behind ptp`, async () => {
    const args = ["lab", "--json", "--chained", `--name=${LAB}`, "--nodes=2", "--pods=6", `--families=${family}`];
    const { code, stdout, stderr } = await isthmus(args);
    assert.equal(code, 0, stderr + stdout);
    const report = JSON.parse(stdout) as LabReport;
    assert.deepEqual(
      [report.ok, report.pods, report.families, report.addresses.outsideBlocks, report.routes, report.audit.findings],
      [true, 6, families, [], { exported: 0, wanted: 0 }, []],
    );
    assert.ok(report.pings.sent > 0 && report.pings.answered === report.pings.sent && report.pings.acrossNodes > 0);
    assert.deepEqual(report.chained, { marked: 6, unmarked: [], strays: [] });
    assert.deepEqual(leftOf(LAB), []);
  });
}

test("lab: --chained refuses what it cannot be combined with, by name", async () => {
  const { code, stderr } = await isthmus(["lab", "--chained", "--services", "--tunnel", `--name=${LAB}`]);
  assert.notEqual(code, 0);
  assert.match(stderr, /--chained: this flag cannot be combined with --tunnel, --services/);
});
