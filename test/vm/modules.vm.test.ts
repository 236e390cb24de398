/** Programs of FoU on a kernel where nobody has loaded its modules, as after the start of a node. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { after, beforeEach, describe, type TestContext, test } from "node:test";
import { loadModules } from "#kernel/modules";
import { CniNode } from "#test/cni-node";
import { until } from "#test/lab";
import { isReady, makePod, openRouterBed } from "#test/router-bed";
import { AT } from "../../src/features/egress/testing/bed.ts";

const FAMILIES = [4, 6] as const;
/** The emulated processor takes 6 s to start node. */
const START = { deadlineMs: 300_000 };

const loaded = (): string[] =>
  readFileSync("/proc/modules", "utf8")
    .split("\n")
    .map((line) => line.split(" ")[0] ?? "")
    .filter((name) => name === "fou" || name === "fou6")
    .sort();

/** As on a system that does not have the module. */
function without(t: TestContext, name: string): void {
  const file = `/etc/modprobe.d/isthmus-${name}.conf`;
  writeFileSync(file, `install ${name} /bin/false\n`);
  t.after(() => rmSync(file));
}

async function open(t: TestContext) {
  const bed = await openRouterBed(t);
  await makePod(
    bed.api,
    "client",
    FAMILIES.map((family) => String(AT.client[family])),
  );
  return bed;
}

// A suite, since all files of the tier are in one process.
describe("without the modules of FoU", () => {
  beforeEach(() => {
    execFileSync("/sbin/modprobe", ["-r", "fou6", "fou"]);
    assert.deepEqual(loaded(), []);
  });
  after(() => loadModules(["fou", "fou6"]));

  test("coil-egress: a router of FoU loads the modules that the kernel does not load by itself", async (t) => {
    const { bed, run } = await open(t);
    const router = run("--backend=nftables");
    await until("it is ready", () => isReady(bed), { ...START, seen: router.said });
    assert.deepEqual(loaded(), ["fou", "fou6"]);
  });

  test("coil-egress: without fou6 auto is VXLAN, and fou ends with the name of the module", async (t) => {
    without(t, "fou6");
    await loadModules(["fou"]);
    const { bed, run } = await open(t);
    const router = run("--backend=nftables", "--tunnel-driver=auto");
    await until("it is ready", () => isReady(bed), { ...START, seen: router.said });
    assert.match(router.said(), /"lacking":\["fou6"\]/);
    router.child.kill("SIGKILL");
    await router.ended;
    const refused = await run("--backend=nftables").ended;
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /--tunnel-driver=fou: this kernel has no fou6: /);
  });

  test("coild: its clients' driver is FoU, with both modules", async (t) => {
    const node = await CniNode.open("modules", ["--tunnel-driver=fou"]);
    t.after(() => node[Symbol.asyncDispose]());
    assert.deepEqual(loaded(), ["fou", "fou6"]);
    assert.match(node.said(), /"driver":"fou"/);
  });

  test("coild: where fou6 cannot be had, pods of IPv4 alone have FoU, and the log names the module that others lack", async (t) => {
    without(t, "fou6");
    const node = await CniNode.open("no-fou6", ["--tunnel-driver=fou"]);
    t.after(() => node[Symbol.asyncDispose]());
    assert.deepEqual(loaded(), ["fou"]);
    assert.match(node.said(), /"driver":"none","ipv4":"fou"/);
    assert.match(node.said(), /"families":\[4\],"error":"--tunnel-driver=fou: this kernel has no fou6: /);
  });

  test("coild and coil-egress: auto is VXLAN where nobody has loaded fou, as it is for programs of 0.1.0, also after a restart", async (t) => {
    const { bed, run } = await open(t);
    const node = await CniNode.open("auto", ["--tunnel-driver=auto"]);
    t.after(() => node[Symbol.asyncDispose]());
    assert.match(node.said(), /"driver":"vxlan"/);
    const router = run("--backend=nftables", "--tunnel-driver=auto");
    await until("it is ready", () => isReady(bed), { ...START, seen: router.said });
    assert.match(router.said(), /"driver":"vxlan"/);
    await node.endCoild();
    await node.startCoild("--tunnel-driver=auto");
    assert.doesNotMatch(node.said(), /"driver":"fou"/);
    assert.deepEqual(loaded(), []);
  });

  test("coild: where fou is loaded auto loads fou6 besides, and is FoU", async (t) => {
    await loadModules(["fou"]);
    const node = await CniNode.open("auto-fou", ["--tunnel-driver=auto"]);
    t.after(() => node[Symbol.asyncDispose]());
    assert.deepEqual(loaded(), ["fou", "fou6"]);
    assert.match(node.said(), /"driver":"fou"/);
  });
});
