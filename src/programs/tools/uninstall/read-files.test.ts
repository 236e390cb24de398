import assert from "node:assert/strict";
import { chownSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { addToEstate } from "#base/estate";
import { nodePrograms, placesOf } from "#test/uninstall-places";
import { bootId, ownNetns } from "../../shared/estate/index.ts";
import { files, outsidePaths } from "./read-files.ts";

test("files: own configurations that were put aside are removed, those of others come back; links that lead nowhere and folders do no harm", async (t) => {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  const etc = join(root, "etc/cni/net.d");
  mkdirSync(join(etc, "40-folder.conf"), { recursive: true });
  mkdirSync(join(root, "opt/cni/bin"), { recursive: true });
  const conflist = (type: string): string => JSON.stringify({ name: "n", plugins: [{ type }] });
  writeFileSync(join(etc, "05-vpc.conflist"), conflist("vpc-neutron"));
  writeFileSync(join(etc, "10-coil.conflist.coil-disabled"), conflist("coil"));
  writeFileSync(join(etc, "20-other.conflist.coil-disabled"), conflist("bridge"));
  symlinkSync("/nowhere", join(etc, "30-link.conflist"));
  symlinkSync("/nowhere", join(root, "opt/cni/bin/coil"));
  symlinkSync("/nowhere", join(root, "opt/cni/bin/vpc-alcor"));
  const places = placesOf(root, await nodePrograms());
  assert.deepEqual(
    files(places).map(({ path, role }) => [path.slice(root.length), role]),
    [
      ["/etc/cni/net.d/05-vpc.conflist", "configuration"],
      ["/etc/cni/net.d/10-coil.conflist.coil-disabled", "configuration"],
      ["/etc/cni/net.d/20-other.conflist.coil-disabled", "set-aside"],
      ["/opt/cni/bin/coil", "foreign-executable"],
      ["/opt/cni/bin/vpc-alcor", "executable"],
    ],
  );
});

test("files: the folders of programs in /run/isthmus go, and with them the whole folder unless somebody else has something there", async (t) => {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  for (const name of ["coild", "nic-agent"]) mkdirSync(join(root, "run/isthmus", name), { recursive: true });
  const places = placesOf(root, await nodePrograms());
  const found = (): readonly string[] => files(places).map(({ path }) => path.slice(root.length));
  assert.deepEqual(found(), ["/run/isthmus"]);
  mkdirSync(join(root, "run/isthmus/lab-x"));
  assert.deepEqual(found(), ["/run/isthmus/coild", "/run/isthmus/nic-agent"]);
});

function rootOf(t: TestContext): string {
  const root = mkdtempSync(join(tmpdir(), "root-"));
  t.after(() => rmSync(root, { recursive: true }));
  return root;
}

/** An estate with these paths. */
function leave(root: string, program: string, paths: readonly string[]): void {
  addToEstate(join(root, "run/isthmus", program), program, {
    ...{ boot: bootId(), netns: String(ownNetns()), kernel: [], files: paths },
  });
}

test("files: paths of an estate go below the program's own folders alone; another one that its writer owns is named, and one of somebody else is not", async (t) => {
  const root = rootOf(t);
  for (const folder of ["run/isthmus/uplink-proxy/x", "var/lib/uplink-proxy", "srv/mine", "srv/theirs", "etc"])
    mkdirSync(join(root, folder), { recursive: true });
  writeFileSync(join(root, "etc/passwd"), "");
  leave(root, "uplink-proxy", [
    ...["/srv/mine", "/srv/theirs", "/var/lib/uplink-proxy/token", "/var/lib/uplink-proxy/../../../etc/passwd"],
    ...["/run/isthmus/uplink-proxy/../../../srv/theirs", "/srv/absent"],
  ]);
  if (process.getuid?.() === 0) chownSync(join(root, "srv/theirs"), 1000, 1000);
  const places = placesOf(root, await nodePrograms());
  assert.deepEqual(
    files(places).map(({ path, role }) => [path.slice(root.length), role]),
    [
      ["/var/lib/uplink-proxy", "state"],
      ["/run/isthmus", "estate"],
    ],
  );
  const outside = outsidePaths(places).map((line) => line.slice(root.length));
  assert.ok(
    outside.some((line) => /^\/srv\/mine: uplink-proxy had it by its estate, in no folder of its own/.test(line)),
  );
  assert.ok(
    !outside.some((line) => line.startsWith("/srv/theirs:") || line.startsWith("/srv/absent")),
    outside.join("\n"),
  );
});

test("files: another socket of coild goes with its files only if coild has marked it as served", {
  skip: process.getuid?.() !== 0 && "the mark of a socket counts only if it is root's",
}, async (t) => {
  const root = rootOf(t);
  mkdirSync(join(root, "run/other"), { recursive: true });
  for (const name of ["c.sock", "c.sock.served", "coild.lock", "coild.former.json", "theirs"])
    writeFileSync(join(root, "run/other", name), "");
  // Of a coild in another network namespace, such as a lab's: marked, and in no estate of this one.
  mkdirSync(join(root, "run/lab"));
  for (const name of ["c.sock", "coild.lock"]) writeFileSync(join(root, "run/lab", name), "");
  leave(root, "coild", [
    "/run/other/c.sock",
    "/run/other/c.sock.served",
    "/run/other/coild.lock",
    "/run/other/coild.former.json",
    "/run/other/theirs",
  ]);
  const found = async (): Promise<readonly string[]> =>
    files(placesOf(root, await nodePrograms())).map(({ path, role }) => `${role} ${path.slice(root.length)}`);
  assert.deepEqual(await found(), ["estate /run/isthmus"]);
  // As `markServed` does, which takes away marks of sockets that this machine does not have.
  mkdirSync(join(root, "run/isthmus/sockets"));
  for (const socket of ["/run/other/c.sock", "/run/lab/c.sock"])
    writeFileSync(join(root, "run/isthmus/sockets", `coild-${Buffer.from(socket).toString("hex")}`), "");
  assert.deepEqual(await found(), [
    "socket /run/other/c.sock",
    "record /run/other/c.sock.served",
    "lock /run/other/coild.lock",
    "record /run/other/coild.former.json",
    "estate /run/isthmus",
  ]);
});
