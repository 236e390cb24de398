import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { coilCrds } from "#kube/coil";
import { planTopology } from "#lab/topology";
import { labPaths } from "./lab-paths.ts";
import { openBuildBefore, placeOf, planUpgrade } from "./upgrade.ts";

const nodes = [{ name: "node1", netns: "isthmus-x-node1" }] as never;

/** A folder as a built checkout has it. */
function folderOf(t: TestContext, files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-upgrade-"));
  t.after(() => rmSync(folder, { recursive: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(join(folder, name, ".."), { recursive: true });
    writeFileSync(join(folder, name), text, { mode: 0o755 });
  }
  return folder;
}
const built = { "dist/isthmus": "#!/bin/sh\necho isthmus 0.1.0\n", "dist/cni/coil": "plugin" };
const [crd] = coilCrds;
const open = (folder: string) => openBuildBefore(folder, { installer: ["this"] }, { paths: labPaths("x") });

test("planUpgrade: the controllers are a place, and each node is one", () => {
  const builds = {
    before: { version: "1", mark: "/a", isthmus: ["/a"] },
    after: { version: "2", mark: "/b", isthmus: ["node", "/b"] },
  };
  const topology = planTopology({ lab: "x", nodes: 1, families: "dual", tunnel: false });
  const { tunnel, ...upgrade } = planUpgrade(topology, builds, { dir: "/run/x" });
  assert.deepEqual([tunnel.netns, tunnel.frontend], [topology.fabric, "/run/x/control-plane/frontend.sock"]);
  assert.deepEqual(tunnel.controlPlane, topology.gateways.map(String));
  assert.deepEqual(upgrade, {
    versions: { before: "1", after: "2" },
    marks: { before: "/a", after: "/b" },
    routers: { before: ["/a", "coil-egress"], after: ["node", "/b", "coil-egress"] },
    places: ["controllers", "node1"],
  });
  assert.equal(placeOf({ nodes }, { netns: "isthmus-x-node1" }), "node1");
  assert.equal(placeOf({ nodes }, { netns: "isthmus-x-fabric" }), "controllers");
});

test("openBuildBefore: a built checkout gives its programs, its installer, its version and its API types", async (t) => {
  const folder = folderOf(t, {
    ...built,
    "deploy/crds/one.yaml": JSON.stringify(crd),
    "deploy/crds/other.yaml": "a: 1",
  });
  assert.deepEqual(await open(folder), {
    version: "0.1.0",
    isthmus: [join(folder, "dist/isthmus")],
    installer: [join(folder, "dist/isthmus")],
    mark: join(folder, "dist/isthmus"),
    cniExecutable: join(folder, "dist/cni/coil"),
    crds: [JSON.parse(JSON.stringify(crd))],
  });
});

test("openBuildBefore: what is no built checkout is refused, with the file that is wrong", async (t) => {
  const refused = async (files: Readonly<Record<string, string>>, message: RegExp): Promise<void> => {
    await assert.rejects(open(folderOf(t, files)), { name: "LabError", code: "start-failed", message });
  };
  await refused({}, /dist\/isthmus is not there; a folder must be a built checkout/);
  await refused({ "dist/isthmus": "x" }, /dist\/cni\/coil is not there/);
  await refused(built, /deploy\/crds/);
  await refused({ ...built, "deploy/crds/bad.yaml": "a: [" }, /bad\.yaml/);
  const broken = { ...built, "dist/isthmus": "#!/bin/sh\necho no Node >&2\nexit 1\n", "deploy/crds/one.yaml": "" };
  await refused(broken, /isthmus --version failed: no Node/);
});
