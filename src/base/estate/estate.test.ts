import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import {
  acceptClaims,
  addToEstate,
  type ClaimSet,
  claimText,
  decodeSets,
  type Estate,
  EstateError,
  encodeSets,
  fixedPart,
  inSpan,
  type KernelClaim,
  MAX_ESTATE_BYTES,
  MAX_SETS,
  NO_ESTATE,
  readEstate,
} from "./index.ts";

const BOOT = "0b0c0d0e-1111-4222-8333-444455556666";
const set = (more: Partial<ClaimSet> = {}): ClaimSet => ({
  ...{ boot: BOOT, netns: "4026531840", files: ["/run/coild.sock"] },
  kernel: [{ id: "pod-routes", kind: "routes", table: 200, protocol: 77 }],
  ...more,
});
/** One claim of each kind, with its text. */
const KINDS: readonly (readonly [claim: KernelClaim, text: string])[] = [
  [{ id: "a", kind: "routes", table: 116, protocol: 30 }, "table 116, protocol 30"],
  [{ id: "a", kind: "routes", table: 254, protocol: 31 }, "the main table, protocol 31"],
  [{ id: "a", kind: "routes", table: [501, 0xffff_ffff], protocol: 157 }, "tables 501 and on, protocol 157"],
  [
    { id: "a", kind: "rules", priority: [1800, 2100], table: [117, 118], in: "client" },
    "rule priority 1800 to 2100 to tables 117 to 118",
  ],
  [
    { id: "a", kind: "rules", priority: 11_500, table: 499, fwmark: 0x55, protocol: 157 },
    "rule priority 11500 to table 499, packet mark 0x55, protocol 157",
  ],
  [{ id: "a", kind: "links", alias: "COIL:<pool>:<id>" }, "link alias `COIL:<pool>:<id>`"],
  [{ id: "a", kind: "link-names", names: ["nat_*", "fou4_*"] }, "links `nat_*`, `fou4_*`"],
  [{ id: "a", kind: "link-groups", groups: [0x4900_0000, 0x49ff_ffff] }, "link groups 0x49000000 to 0x49ffffff"],
  [
    { id: "a", kind: "nft-table", family: "ip", name: "kube-proxy", chain: "isthmus-layout-1" },
    "nftables table `ip kube-proxy`, chain `isthmus-layout-1`",
  ],
  [
    { id: "a", kind: "comments", chain: "FORWARD", comment: "isthmus: pods" },
    "rules of FORWARD with the comment `isthmus: pods`",
  ],
  [{ id: "a", kind: "address", address: "10.0.0.1", link: "lo", protocol: 73 }, "address `10.0.0.1` on `lo`"],
  [{ id: "a", kind: "sysctl", key: "net/ipv4/ip_forward", value: "1" }, "`net.ipv4.ip_forward`"],
  [{ id: "a", kind: "mark", value: 0x4000 }, "packet mark 0x4000"],
  [{ id: "a", kind: "udp-port", port: 5555, in: "client" }, "UDP port 5555"],
];

test("claimText: each kind has a text, with the flag of a field after its value", () => {
  for (const [claim, text] of KINDS) assert.equal(claimText(claim), text);
  const routes = { id: "a", kind: "routes", table: 116, protocol: 30 } as const;
  assert.equal(
    claimText(routes, { table: "--pod-table-id", protocol: "--protocol-id" }),
    "table 116 (--pod-table-id), protocol 30 (--protocol-id)",
  );
  assert.deepEqual([fixedPart("COIL:<pool>"), fixedPart("plain")], ["COIL:", "plain"]);
  assert.deepEqual([inSpan(5, 5), inSpan(5, 6), inSpan([5, 7], 7), inSpan([5, 7], 8)], [true, false, true, false]);
});

test("encodeSets: what is decoded is what was encoded, of every kind; the oldest sets go where there are too many", () => {
  const all = set({ kernel: KINDS.map(([claim]) => claim) });
  assert.deepEqual(decodeSets("coild", encodeSets("coild", [all])), [all]);
  const many = Array.from({ length: MAX_SETS + 3 }, (_, netns) => set({ netns: String(netns) }));
  assert.deepEqual(decodeSets("coild", encodeSets("coild", many)), many.slice(0, MAX_SETS));
  const files = Array.from({ length: 64 }, (_, at) => `/run/${"x".repeat(900)}${at}`);
  const large = encodeSets("coild", [set({ files }), set({ files, netns: "2" })]);
  assert.deepEqual([decodeSets("coild", large).length, large.length <= MAX_ESTATE_BYTES], [1, true]);
  const outside = set({ files: ["relative"] });
  assert.throws(() => encodeSets("coild", [outside]), { name: "EstateError", code: "invalid" });
});

test("decodeSets: other texts are refused with the place of the fault, and no other error escapes", () => {
  const text = (value: object): string => JSON.stringify({ version: 1, program: "coild", sets: [], ...value });
  for (const [encoded, fault] of [
    ["{", /it is not JSON/],
    ["[]", /version is not/],
    ["7", /the whole is not/],
    [text({ version: 2 }), /version is not/],
    [text({ program: "nic-agent" }), /it is that of nic-agent/],
    [text({ more: 1 }), /more is not/],
    [text({ sets: [set({ files: ["relative"] })] }), /sets\.0\.files\.0/],
    [text({ sets: [set({ files: ["/run/\u001b[2J"] })] }), /sets\.0\.files\.0/],
    [text({ sets: [{ ...set(), kernel: [{ id: "a", kind: "routes", table: -1, protocol: 3 }] }] }), /kernel\.0/],
    [text({ sets: [{ ...set(), kernel: [{ id: "a", kind: "routes", table: [9, 1], protocol: 9 }] }] }), /kernel\.0/],
    [text({ sets: [{ ...set(), kernel: [{ id: "a", kind: "process", pid: 1 }] }] }), /kernel\.0\.kind/],
    [" ".repeat(MAX_ESTATE_BYTES + 1), /more than 65536 bytes/],
  ] as const)
    assert.throws(() => decodeSets("coild", encoded), fault, encoded.slice(0, 80));
  const value = fc.letrec((tie) => ({
    any: fc.oneof(fc.string(), fc.integer(), fc.constantFrom("routes", "coild", 1, null), tie("list"), tie("object")),
    list: fc.array(tie("any"), { maxLength: 3 }),
    object: fc.dictionary(
      fc.constantFrom("version", "program", "sets", "boot", "netns", "kernel", "files", "kind", "__proto__", "id"),
      tie("any"),
      { maxKeys: 6 },
    ),
  }));
  fc.assert(
    fc.property(
      fc.oneof(
        value.any.map((one) => JSON.stringify(one)),
        fc.string(),
        fc.json(),
      ),
      (encoded) => {
        try {
          assert.ok(decodeSets("coild", encoded).length <= MAX_SETS);
        } catch (error) {
          assert.ok(error instanceof EstateError && error.code === "invalid", String(error));
        }
      },
    ),
    { numRuns: 500 },
  );
});

const TEMPLATE: Estate = {
  ...NO_ESTATE,
  kernel: [
    {
      claims: [
        { id: "pod-routes", kind: "routes", table: 116, protocol: 30 },
        { id: "pod-rule", kind: "rules", priority: 2000, table: 116 },
      ],
      flags: { table: "--pod-table-id", protocol: "--protocol-id", priority: "--pod-rule-prio" },
      what: "",
    },
    {
      claims: [{ id: "node-routes", kind: "routes", table: 254, protocol: 31 }],
      flags: { protocol: "--protocol-id" },
      what: "",
    },
    { claims: [{ id: "guard", kind: "nft-table", family: "inet", name: "source-guard" }], what: "" },
    {
      claims: [{ id: "services", kind: "nft-table", family: "ip", name: "kube-proxy", chain: "isthmus-layout-1" }],
      flags: { name: "--table-name" },
      what: "",
    },
  ],
};

test("acceptClaims: of an estate only claims of the program's kinds count, with numbers that are nobody else's", () => {
  const own: readonly KernelClaim[] = [
    { id: "pod-routes", kind: "routes", table: 200, protocol: 77 },
    { id: "pod-rule", kind: "rules", priority: 1234, table: 200 },
    { id: "node-routes", kind: "routes", table: 254, protocol: 78 },
    { id: "guard", kind: "nft-table", family: "inet", name: "source-guard" },
    { id: "services", kind: "nft-table", family: "ip", name: "mine", chain: "isthmus-layout-1" },
  ];
  assert.deepEqual(acceptClaims(TEMPLATE, { kernel: own }, { isRoots: true }), { kernel: own, refused: [] });
  const hostile: readonly (readonly [claim: KernelClaim, why: RegExp])[] = [
    [{ id: "other", kind: "routes", table: 200, protocol: 77 }, /no claim of this name/],
    [{ id: "pod-routes", kind: "mark", value: 1 }, /no flag of the program changes its kind/],
    ...[0, 253, 254, 255].map(
      (table) => [{ id: "pod-routes", kind: "routes", table, protocol: 77 }, /the table is the kernel's/] as const,
    ),
    [{ id: "pod-routes", kind: "routes", table: [1, 0xffff_ffff], protocol: 77 }, /changes its table/],
    ...[0, 1, 2, 3, 4].map(
      (protocol) =>
        [{ id: "pod-routes", kind: "routes", table: 200, protocol }, /protocol is that of the kernel/] as const,
    ),
    ...[12, 186].map(
      (protocol) => [{ id: "node-routes", kind: "routes", table: 254, protocol }, /of a routing daemon/] as const,
    ),
    [{ id: "pod-routes", kind: "routes", table: 200, protocol: 77, in: "client" }, /changes its in/],
    [{ id: "pod-rule", kind: "rules", priority: 1234, table: 254 }, /the table is the kernel's/],
    [{ id: "pod-rule", kind: "rules", priority: 0, table: 200 }, /priority is that of a rule of the kernel/],
    [{ id: "pod-rule", kind: "rules", priority: 32_766, table: 200 }, /priority is that of a rule of the kernel/],
    [{ id: "pod-rule", kind: "rules", priority: 1, table: 200, fwmark: 7 }, /changes its fwmark/],
    [{ id: "guard", kind: "nft-table", family: "inet", name: "filter" }, /changes its name/],
    [{ id: "services", kind: "nft-table", family: "inet", name: "mine", chain: "isthmus-layout-1" }, /its family/],
    [{ id: "services", kind: "nft-table", family: "ip", name: "filter", chain: "INPUT" }, /changes its chain/],
    [{ id: "services", kind: "nft-table", family: "ip", name: "filter" }, /changes its chain/],
  ];
  for (const [claim, why] of hostile) {
    const { kernel, refused } = acceptClaims(TEMPLATE, { kernel: [claim] }, { isRoots: true });
    assert.deepEqual(kernel, [], JSON.stringify(claim));
    assert.match(refused.join(), why);
  }
  const main = { kernel: [own[2] as KernelClaim] };
  assert.match(acceptClaims(TEMPLATE, main, { isRoots: false }).refused.join(), /only root may claim/);
});

function folderOf(t: TestContext): string {
  const root = mkdtempSync(join(tmpdir(), "isthmus-estate-"));
  t.after(() => rmSync(root, { recursive: true }));
  return join(root, "isthmus", "coild");
}

test("addToEstate: the folder is closed, a restart adds a set, an equal one is kept once, and one of an earlier boot keeps its paths", (t) => {
  const folder = folderOf(t);
  assert.throws(() => readEstate(folder, "coild"), { name: "EstateError", code: "absent" });
  addToEstate(folder, "coild", set());
  assert.deepEqual([statSync(folder).mode & 0o777, statSync(join(folder, "estate.json")).mode & 0o777], [0o700, 0o600]);
  addToEstate(folder, "coild", set({ kernel: [] }));
  addToEstate(folder, "coild", set());
  assert.deepEqual(readEstate(folder, "coild"), { sets: [set()], uid: process.geteuid?.() });
  const other = set({ kernel: [{ id: "pod-routes", kind: "routes", table: 300, protocol: 77 }] });
  addToEstate(folder, "coild", other);
  assert.deepEqual(readEstate(folder, "coild").sets, [other, set()]);
  const later = set({ boot: "ffff", files: ["/run/other.sock"] });
  addToEstate(folder, "coild", later);
  assert.deepEqual(readEstate(folder, "coild").sets, [later, { ...set(), kernel: [] }]);
  writeFileSync(join(folder, "estate.json"), "{");
  assert.throws(() => readEstate(folder, "coild"), { code: "invalid" });
  addToEstate(folder, "coild", set());
  assert.deepEqual(readEstate(folder, "coild").sets, [set()]);
  rmSync(folder, { recursive: true });
  writeFileSync(folder, "");
  assert.throws(() => addToEstate(folder, "coild", set()), { code: "unwritable" });
});

test("readEstate: links, pipes, large files and files of others are refused, and do not block", (t) => {
  const folder = folderOf(t);
  const [parent, file] = [join(folder, ".."), join(folder, "estate.json")];
  const fresh = (): void => {
    rmSync(folder, { recursive: true, force: true });
    addToEstate(folder, "coild", set());
  };
  const refused = (code: string, plant: () => void): void => {
    fresh();
    plant();
    assert.throws(() => readEstate(folder, "coild"), { name: "EstateError", code }, plant.toString());
  };
  refused("untrusted", () => {
    renameSync(file, join(parent, "elsewhere.json"));
    symlinkSync(join(parent, "elsewhere.json"), file);
  });
  refused("untrusted", () => {
    renameSync(folder, join(parent, "moved"));
    symlinkSync(join(parent, "moved"), folder);
  });
  refused("untrusted", () => {
    rmSync(file);
    execFileSync("mkfifo", [file]);
  });
  refused("untrusted", () => {
    rmSync(file);
    mkdirSync(file);
  });
  refused("untrusted", () => chmodSync(file, 0o666));
  refused("untrusted", () => chmodSync(folder, 0o777));
  refused("untrusted", () => chmodSync(parent, 0o777));
  chmodSync(parent, 0o755);
  refused("invalid", () => writeFileSync(file, `${" ".repeat(MAX_ESTATE_BYTES)}{}`));
  if (process.getuid?.() !== 0) return;
  refused("untrusted", () => chownSync(file, 1000, 1000));
  refused("untrusted", () => chownSync(parent, 1000, 1000));
  chownSync(parent, 0, 0);
  // A program that runs as another user.
  fresh();
  chownSync(folder, 1000, 1000);
  chownSync(file, 1000, 1000);
  assert.equal(readEstate(folder, "coild").uid, 1000);
  assert.equal(existsSync(file), true);
});
