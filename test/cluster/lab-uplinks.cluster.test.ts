import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, test } from "node:test";
import type { LabReport, UplinksReport } from "#lab/scenario";
import { commandsOf, follow } from "#test/guide";
import { isthmus, leftOf, processesOf, removeLab, stateOf } from "#test/lab";

const LAB = "ct-uplinks";
const NAME = `--name=${LAB}`;
const SMALL = ["--json", NAME, "--nodes=2", "--pods=4"];
const TIMEOUT = { timeout: 120_000 };
const FILE_BYTES = 4 * 2 ** 20;
/** The delay before the next tier (3 s), the time to a first byte (5 s), and what a busy machine adds, in seconds. */
const LIMITS = { "link-down": 5, "gateway-dead": 6, swallow: 9 } as const;

after(async () => removeLab(LAB));

type Found = LabReport & { readonly uplinks: UplinksReport };

/** Runs the demonstration of the page, small. */
async function report(args: readonly string[]): Promise<Found> {
  const [page = ""] = commandsOf("uplink-proxy.md", "(top)");
  const stdout = await follow([page], { words: { "--uplinks": ["--uplinks", ...SMALL, ...args].join(" ") } });
  const { uplinks, ...rest } = JSON.parse(stdout) as LabReport;
  assert.ok(uplinks !== undefined, "a report with --uplinks tells of them");
  return { ...rest, uplinks };
}

/** No download failed, and each used the uplink that its fault leaves. */
function assertCarried({ downloads, recoveries, carried }: UplinksReport, targets: readonly string[]): void {
  for (const one of downloads) {
    assert.ok(one.ok, JSON.stringify(one));
    assert.equal(one.bytes, FILE_BYTES, JSON.stringify(one));
    const right = one.when === "healthy" || one.when === "healed" ? "wan0" : "wan1";
    assert.deepEqual([one.uplink, one.wanted], [right, right], JSON.stringify(one));
  }
  const times = { healthy: 1, "link-down": 2, "gateway-dead": 2, swallow: 2, healed: 3 } as const;
  for (const [when, count] of Object.entries(times)) {
    const asked = downloads.filter((one) => one.when === when).map(({ to }) => to);
    const wanted = Array.from({ length: count }, () => targets).flat();
    assert.deepEqual(asked.sort(), wanted.sort(), when);
  }
  assert.deepEqual(
    recoveries.map(({ fault }) => fault),
    ["link-down", "gateway-dead", "swallow"],
  );
  for (const { fault, seconds, backSeconds } of recoveries) {
    assert.ok(seconds !== null && seconds > 0 && seconds < LIMITS[fault], `${fault}: ${seconds}`);
    assert.ok(backSeconds < 10, `${fault}: back after ${backSeconds}`);
  }
  assert.ok((carried["wan0"]?.bytes ?? 0) >= 4 * targets.length * FILE_BYTES);
  assert.ok((carried["wan1"]?.bytes ?? 0) >= 6 * targets.length * FILE_BYTES);
}

/** The cheap uplink failed in three ways, and no client saw an error. */
function assertFailsOver(found: Found, families: "dual" | "ipv4" | "ipv6", addresses: readonly string[]): void {
  assert.equal(found.ok, true);
  assert.ok(found.pings.sent > 0 && found.pings.answered === found.pings.sent);
  assert.deepEqual(found.audit.findings, []);
  // What --families says, and nothing else.
  assert.deepEqual(found.families, families === "dual" ? ["ipv4", "ipv6"] : [families]);
  assert.equal(found.cluster.pods.length, 4);
  if (families !== "dual") assert.ok(found.cluster.pods.every((pod) => pod.addresses.length === 1));
  assert.deepEqual([found.addresses.unique, found.addresses.outsideBlocks], [true, []]);
  assert.ok(found.routes.exported > 0 && found.routes.exported === found.routes.wanted);
  assert.equal(found.uplinks.node, "node1");
  assert.deepEqual(
    found.uplinks.links.map(({ name, cost }) => [name, cost]),
    [
      ["wan0", 0],
      ["wan1", 10],
    ],
  );
  assertCarried(found.uplinks, ["files.example", ...addresses]);
}

for (const { families, more, addresses } of [
  { families: "dual", more: ["--tunnel"], addresses: ["203.0.113.80", "2001:db8:80::80"] },
  { families: "ipv6", more: [], addresses: ["2001:db8:80::80"] },
] as const) {
  test(
    `lab --uplinks --families=${families} ${more}: pods and uplinks have these families alone; the cheap uplink fails in three ways, clients see no error, and nothing stays`,
    TIMEOUT,
    async () => {
      const found = await report([`--families=${families}`, ...more]);
      assertFailsOver(found, families, addresses);
      assert.equal(found.tunnel !== undefined, more.length > 0);
      assert.deepEqual(leftOf(LAB), []);
    },
  );
}

test(
  "lab --uplinks --families=ipv4 --keep: pods and uplinks have IPv4 alone; the cheap uplink fails in three ways, clients see no error; curl in the node downloads through the proxy, which is back when it is killed",
  TIMEOUT,
  async () => {
    const found = await report(["--keep", "--families=ipv4"]);
    assertFailsOver(found, "ipv4", ["203.0.113.80"]);
    assert.equal(found.tunnel, undefined);
    const known = processesOf(LAB);
    const { uplinks } = stateOf(LAB);
    assert.ok(uplinks !== undefined);
    const inNode = (...argv: string[]): string =>
      execFileSync("ip", ["netns", "exec", uplinks.netns, ...argv], { encoding: "utf8", timeout: 30_000 });
    const retry = ["--retry", "20", "--retry-all-errors", "--retry-delay", "1"];
    const curl = (url: string): string =>
      inNode("curl", "-sS", ...retry, "--proxy", "http://127.0.0.1:5443", "--cacert", uplinks.ca, url);
    assert.equal(curl("https://files.example/who"), "192.0.2.10\n");
    const proxy = stateOf(LAB).children.find(({ name }) => name === "uplink-proxy-node1");
    assert.ok(proxy !== undefined, "the proxy is a program of the lab");
    const tables = (): string => inNode("ip", "rule") + inNode("ip", "route", "show", "table", "all", "proto", "157");
    const before = tables();
    process.kill(proxy.pid, "SIGKILL");
    assert.equal(curl("https://203.0.113.80/who"), "192.0.2.10\n");
    assert.equal(tables(), before);
    const down = await isthmus(["lab", "down", NAME]);
    assert.deepEqual([down.code, down.stderr], [0, `lab ${LAB} removed\n`]);
    assert.deepEqual(leftOf(LAB, known), []);
  },
);
