/** The pod of `coild` is replaced by one of another build: a runtime that asks STATUS all the time keeps its node in service (cniVersion 1.1.0). */
import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { CniNode } from "#test/cni-node";
import { ISTHMUS, type Outcome, start } from "#test/lab";

const SHIPPED = join(ISTHMUS, "../cni/coil");
let node: CniNode;
let config: object;

before(async () => {
  node = await CniNode.open("replaced");
  config = { cniVersion: "1.1.0", name: "k8s-pod-network", type: "coil", socket: node.socket };
});
after(() => node?.[Symbol.asyncDispose]());

/** The init container of a new build, with the wait for runtimes. */
async function install(build: string): Promise<void> {
  const image = join(node.folder, build);
  mkdirSync(image);
  copyFileSync(SHIPPED, join(image, "coil"));
  writeFileSync(
    join(image, "coil-standalone"),
    Buffer.concat([readFileSync(`${SHIPPED}-standalone`), Buffer.from(build === "old" ? "" : build)]),
  );
  const env = {
    CNI_ETC_DIR: join(node.folder, "etc"),
    CNI_BIN_DIR: join(node.folder, "bin"),
    COIL_PATH: join(image, "coil"),
    CNI_NETCONF: JSON.stringify({ cniVersion: "1.1.0", name: "k8s-pod-network", plugins: [config] }),
  };
  const flags = build === "old" ? ["--rescan-wait=0"] : ["--rescan-wait=1h"];
  const { code, stderr } = await start([join(ISTHMUS, "../coil-installer"), ...flags], { env }).ended;
  assert.equal(code, 0, stderr);
  assert.match(stderr, /"binaryChanged":true/);
}

function status(): Promise<Outcome> {
  const env = { CNI_COMMAND: "STATUS", CNI_PATH: join(node.folder, "bin") };
  return start(node.inside(join(node.folder, "bin/coil")), { env, input: Buffer.from(JSON.stringify(config)) }).ended;
}

/** Exit code, and the code of the error. */
async function answer(): Promise<string> {
  const { code, stdout } = await status();
  return stdout === "" ? String(code) : `${code} ${JSON.parse(stdout).code}`;
}

const mark = (): string => `${node.socket}.served`;

/** Lets the time since the last word of `coild` be as long as this, in seconds. */
function setAge(seconds: number): void {
  const at = Date.now() / 1000 - seconds;
  utimesSync(mark(), at, at);
}

test("coild: while another build takes its place STATUS succeeds, for a minute at most, and after a kill too", async () => {
  await install("old");
  assert.equal(await answer(), "0");
  for (const end of [() => node.endCoild(), () => node.killCoild()]) {
    await end();
    assert.equal(await answer(), "0");
    setAge(55);
    assert.equal(await answer(), "0");
    setAge(61);
    assert.equal(await answer(), "1 50");
    setAge(30);
    if (end.toString().includes("endCoild")) await install("new");
    let isBack = false;
    const starting = node.startCoild().finally(() => {
      isBack = true;
    });
    while (!isBack) assert.equal(await answer(), "0");
    await starting;
    for (let at = 0; at < 5; at += 1) assert.equal(await answer(), "0", "it knows its blocks again");
  }
  await node.killCoild();
  rmSync(mark());
  assert.equal(await answer(), "1 50", "after a reboot there is no mark");
});
