import assert from "node:assert/strict";
import { test } from "node:test";
import { type UplinkDownload, type UplinksReport, uplinksLines, uplinksWork } from "./uplinks-report.ts";

const MIB = 2 ** 20;
const ONE: UplinkDownload = {
  when: "healthy",
  to: "files.example",
  uplink: "wan0",
  wanted: "wan0",
  bytes: 4 * MIB,
  seconds: 0.1,
  ok: true,
};
const GOOD: UplinksReport = {
  node: "node1",
  links: [
    { name: "wan0", cost: 0, addresses: ["192.0.2.10"] },
    { name: "wan1", cost: 10, addresses: ["198.51.100.10"] },
  ],
  downloads: [ONE, { ...ONE, when: "swallow", uplink: "wan1", wanted: "wan1" }],
  recoveries: [{ fault: "swallow", seconds: 5.08, backSeconds: 1.1 }],
  carried: { wan0: { tunnels: 3, bytes: 5 * MIB }, wan1: { tunnels: 1, bytes: 4 * MIB } },
  seconds: 9,
};

const BAD: readonly (readonly [string, Partial<UplinksReport>, RegExp])[] = [
  ["nothing was downloaded", { downloads: [], carried: {} }, /^FAIL uplinks of node1: 0 of 0 downloads/m],
  [
    "a client saw an error",
    { downloads: [ONE, { ...ONE, uplink: "", bytes: 0, ok: false, error: "CONNECT files.example:443: 502" }] },
    /^FAIL uplinks of node1: 1 of 2 .*\n +healthy, files\.example: CONNECT files\.example:443: 502$/m,
  ],
  [
    "the dear uplink carried what the cheap one should",
    { downloads: [{ ...ONE, uplink: "wan1" }] },
    /^FAIL .*\n +healthy, files\.example: carried by wan1 instead of wan0$/m,
  ],
  [
    "the proxy counted less than clients got",
    { carried: { wan0: { tunnels: 1, bytes: 4 * MIB }, wan1: { tunnels: 1, bytes: 4 * MIB - 1 } } },
    /^FAIL carried: .*; these uplinks carried fewer bytes than clients received over them: wan1$/m,
  ],
];

function linesOf(report: UplinksReport): string {
  return uplinksLines(report, { mark: (good) => (good ? "ok  " : "FAIL"), cut: (lines) => lines }).join("\n");
}

test("uplinks report: all downloads complete over the right uplinks, with the times of each fault", () => {
  assert.equal(uplinksWork(GOOD), true);
  assert.equal(
    linesOf(GOOD),
    [
      "ok   uplinks of node1: 2 of 2 downloads whole, without an error, over the right uplink of wan0 (cost 0) and wan1 (cost 10)",
      "       accepts and then drops packets: first whole download after 5.08 s; after the repair the cheap uplink carries connections again within 1.10 s",
      "ok   carried: wan0 3 tunnels, 5.0 MiB; wan1 1 tunnels, 4.0 MiB",
    ].join("\n"),
  );
});

for (const [what, change, line] of BAD) {
  test(`uplinks report: not well when ${what}`, () => {
    const report = { ...GOOD, ...change };
    assert.equal(uplinksWork(report), false);
    assert.match(linesOf(report), line);
  });
}
