import assert from "node:assert/strict";
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { character } from "#test/characters";
import { inodesOf } from "../../shared/suite/listeners.ts";
import { cniFile, executablesOf, readCniFiles } from "./cni.ts";
import { isMounted, isReadOnly } from "./mounts.ts";
import { networkdFiles, networkdRemoves } from "./networkd.ts";

const MOUNTS = [
  "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
  "23 22 0:20 / /run rw,nosuid - tmpfs tmpfs rw,size=1k",
  "24 22 8:2 / /var/lib ro,relatime - ext4 /dev/sda2 rw",
  "25 24 8:3 / /var/lib/with\\040space rw - ext4 /dev/sda3 rw",
  "26 22 8:4 / /data rw - ext4 /dev/sda4 ro,errors=remount-ro",
  "27 22 8:4 / /twice ro - ext4 /dev/sda4 rw",
  "28 22 8:4 / /twice rw - ext4 /dev/sda4 rw",
].join("\n");

test("isReadOnly: by the mount that a path is on, or by its file system", () => {
  for (const [path, expected] of [
    ["/etc/cni/net.d", false],
    ["/run/coild.sock", false],
    ["/running", false],
    ["/var/lib/isthmus", true],
    ["/var/library", false],
    ["/var/lib/with space/x", false],
    ["/data", true],
    ["/twice/x", false],
  ] as const)
    assert.equal(isReadOnly(MOUNTS, path), expected, path);
});

test("isMounted, isReadOnly: in a container a folder is the node's if it is mounted, and what a pod mounts read-only is not a fault of the file system", () => {
  const pod = [
    "1 0 0:1 / / ro - overlay overlay rw",
    "2 1 8:1 /etc/cni/net.d /etc/cni/net.d ro - ext4 /dev/sda1 rw",
    "3 1 8:1 /run /run rw - tmpfs tmpfs ro",
  ].join("\n");
  assert.deepEqual(
    ["/etc/cni/net.d", "/opt/cni/bin", "/run/coild.sock"].map((path) => isMounted(pod, path)),
    [true, false, true],
  );
  assert.deepEqual(
    ["/etc/cni/net.d", "/run/x"].map((path) => isReadOnly(pod, path, { isContainer: true })),
    [false, true],
  );
  assert.equal(isReadOnly(pod, "/etc/cni/net.d"), true);
  assert.equal(isMounted("", "/opt"), false);
});

test("inodesOf: the sockets that listen at a port, in both families", () => {
  const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
  const row = (local: string, state: string, inode: number) =>
    `   0: ${local} 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000     0        0 ${inode} 1 0 100 0`;
  const ipv6 = "00000000000000000000000000000000:24A9";
  const table = [
    head,
    row("0100007F:24A9", "0A", 7),
    row("0100007F:24A9", "01", 8),
    row("0100007F:24AA", "0A", 9),
    row(ipv6, "0A", 10),
  ];
  assert.deepEqual(inodesOf(table.join("\n"), 9385), ["7", "10"]);
});

test("cniFile: plugins of lists, single configurations and delegates, with their sockets", () => {
  const text =
    '{"name":"k","plugins":[{"type":"vpc-neutron","socket":"/s","delegate":{"type":"coil"}},{"type":"ptp","ipam":{"type":"host-local"}}]}';
  assert.deepEqual(
    cniFile("10-a.conflist", text).plugins.map(({ type, socket }) => [type, socket]),
    [
      ["vpc-neutron", "/s"],
      ["coil", undefined],
      ["ptp", undefined],
      ["host-local", undefined],
    ],
  );
  const multus = '{"name":"m","type":"multus","delegates":[{"plugins":[{"type":"coil"}]}]}';
  assert.deepEqual(
    cniFile("00-multus.conf", multus).plugins.map(({ type }) => type),
    ["multus", "coil"],
  );
  assert.equal(cniFile("10-a.conf", '{"type":"bridge"}').plugins[0]?.type, "bridge");
  assert.match(cniFile("10-a.conflist", "{").fault ?? "", /is not JSON/);
  assert.match(cniFile("10-a.conflist", '{"plugins":[]}').fault ?? "", /name is missing/);
  assert.match(cniFile("10-a.conflist", undefined).fault ?? "", /cannot be read/);
});

test("cniFile, isReadOnly, inodesOf: no bytes make them throw", () => {
  const json = fc.json().map((text) => text.replaceAll('"a"', '"type"').replaceAll('"b"', '"plugins"'));
  fc.assert(
    fc.property(
      fc.oneof(fc.string({ unit: character }), json),
      fc.constantFrom("a.conf", "a.conflist"),
      (text, file) => {
        assert.equal(cniFile(file, text).file, file);
        assert.equal(typeof isReadOnly(text, "/run"), "boolean");
        assert.equal(typeof isMounted(text, "/run"), "boolean");
        assert.deepEqual(
          inodesOf(text, 1).filter((inode) => !/^\d+$/.test(inode)),
          [],
        );
      },
    ),
  );
  const deep = `${'{"delegate":'.repeat(5000)}{"type":"coil"}${"}".repeat(5000)}`;
  assert.deepEqual(cniFile("a.conf", deep).plugins, []);
});

test("readCniFiles, executablesOf: files in the order of runtimes; what is missing, empty or not executable", (t) => {
  const folder = mkdtempSync(join(tmpdir(), "cni-"));
  t.after(() => rmSync(folder, { recursive: true }));
  assert.deepEqual(readCniFiles(join(folder, "none")), { fault: "the folder does not exist or may not be read" });
  writeFileSync(
    join(folder, "20-b.conflist"),
    '{"name":"n","plugins":[{"type":"coil"},{"type":"empty"},{"type":"plain"},{"type":"../x"},{"type":"dir"}]}',
  );
  writeFileSync(join(folder, "10-a.conf"), '{"type":"bridge"}');
  writeFileSync(join(folder, "00-x.conflist.coil-disabled"), "{}");
  writeFileSync(join(folder, "empty"), "");
  writeFileSync(join(folder, "plain"), "x");
  chmodSync(join(folder, "plain"), 0o644);
  mkdirSync(join(folder, "dir"));
  const files = readCniFiles(folder);
  assert.ok("value" in files);
  assert.deepEqual(
    files.value.map(({ file }) => file),
    ["10-a.conf", "20-b.conflist"],
  );
  assert.deepEqual(
    executablesOf(files.value, folder).map(({ fault }) => fault),
    ["is missing", "is empty", "has no right to be executed: chmod 755 is missing", "is not a file"],
  );
});

test("networkdRemoves: the last setting of the section Network counts, and by default all is removed", () => {
  const of = (...texts: readonly string[]): string => JSON.stringify(Object.values(networkdRemoves(texts)));
  const off = "[Network]\nManageForeignRoutingPolicyRules=no\nManageForeignRoutes = off\n";
  assert.equal(of(), "[true,true]");
  assert.equal(of(off), "[false,false]");
  assert.equal(of(off, "[Network]\nManageForeignRoutes=Yes"), "[false,true]");
  assert.equal(
    of("[DHCPv4]\nManageForeignRoutes=no\n#[Network]\n[Network]\n;ManageForeignRoutes=no\nManageForeignRoutes=perhaps"),
    "[true,true]",
  );
  assert.equal(of("ManageForeignRoutes=no"), "[true,true]");
  fc.assert(
    fc.property(
      fc.array(
        fc.oneof(
          fc.string(),
          fc.string().map((text) => `[Network]\nManageForeignRoutes=${text}`),
        ),
      ),
      (texts) => {
        assert.equal(typeof networkdRemoves(texts).routes, "boolean");
      },
    ),
  );
});

test("networkdFiles: the first main file, then drop-ins by name, of which one of /etc hides that of /usr/lib", (t) => {
  const root = mkdtempSync(join(tmpdir(), "networkd-"));
  t.after(() => rmSync(root, { recursive: true }));
  assert.deepEqual(networkdFiles(root), []);
  const write = (path: string, text: string): void => {
    mkdirSync(join(root, path, ".."), { recursive: true });
    writeFileSync(join(root, path), text);
  };
  write("usr/lib/systemd/networkd.conf", "vendor");
  write("usr/lib/systemd/networkd.conf.d/20-b.conf", "hidden");
  write("usr/lib/systemd/networkd.conf.d/10-a.conf", "a");
  write("etc/systemd/networkd.conf.d/20-b.conf", "b");
  write("etc/systemd/networkd.conf.d/30-c.conf.bak", "no");
  write("run/systemd/networkd.conf.d/15-r.conf", "r");
  assert.deepEqual(networkdFiles(root), ["vendor", "a", "r", "b"]);
  write("etc/systemd/networkd.conf", "main");
  assert.deepEqual(networkdFiles(root), ["main", "a", "r", "b"]);
});
