import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import { Cidr } from "#base/ip";
import { nullLogger } from "#base/log";
import { isKernelError } from "#kernel/errors";
import { type Nft, NftError } from "#kernel/nft";
import type { ElementTable } from "#kernel/nft-elements";
import { overridden } from "#test/overridden";
import { addressBytes, planService, WantedTable } from "../plan/index.ts";
import { Bed } from "../testing/bed.ts";
import { addressesOf, endpoint, NODE, ruleOptions, servicePort } from "../testing/fixture.ts";
import { DataPlane, GenerationTracker, type WantedState } from "./index.ts";

const NAME = `isp-ab-${process.pid}`;
/** Two that are refused, and one that gives up what is there. */
const MAX_ATTEMPTS = 3;
/** For the table and its replacement table, and once more before each is made. */
const LOOKS = 4;
const T = "ip kube-proxy";
const S = "ip kube-proxy-takeover";

const MARKS = [`add chain ${T} isthmus-layout-1`, `add chain ${T} isthmus-complete`];
const NO_TABLE = [`add table ${T}`, `delete table ${T}`];
const REPLACEMENT = [`add table ${S}`, `add chain ${S} isthmus-layout-1`];
const COMPLETE_REPLACEMENT = [...REPLACEMENT, `add chain ${S} isthmus-complete`];
const FRONT_END = "ipv4_addr . inet_proto . inet_service";

/** Changes of other programs to our table, as nft(8) commands. A repair makes the same table as a start from nothing. */
const MENDED: Readonly<Record<string, readonly string[]>> = {
  "an unchanged table": [],
  "a flushed table": [`flush table ${T}`],
  "a removed table": [`delete table ${T}`],
  "a dormant table": [`add table ${T} { flags dormant; }`],
  "a set of another type": [...NO_TABLE, `add table ${T}`, ...MARKS, `add set ${T} service-ips { type mark; }`],
  "a map of endpoints of another type": [...NO_TABLE, `add table ${T}`, ...MARKS, `add set ${T} eps { type mark; }`],
  "a chain at another hook": [
    `flush chain ${T} nat-postrouting`,
    `delete chain ${T} nat-postrouting`,
    `add chain ${T} nat-postrouting { type filter hook input priority 5; }`,
  ],
  "a chain without its hook": [
    `flush chain ${T} nat-prerouting`,
    `delete chain ${T} nat-prerouting`,
    `add chain ${T} nat-prerouting`,
  ],
  "a chain that drops by default": [
    `add chain ${T} filter-forward { type filter hook forward priority 0; policy drop; }`,
  ],
  "an unowned chain in it that drops all": [
    `add chain ${T} evil { type filter hook prerouting priority -300; policy drop; }`,
  ],
  "an unowned rule first in a chain of ours": [`insert rule ${T} nat-prerouting accept`],
  "a foreign replacement table": [
    `add table ${S}`,
    `add chain ${S} x { type filter hook input priority 0; policy accept; }`,
  ],
  "a replacement table that is marked as complete, and is empty": COMPLETE_REPLACEMENT,
  "a replacement table with a set of another type": [...REPLACEMENT, `add set ${S} service-ips { type mark; }`],
  "no table, and a replacement table that is marked as complete, with a set of another type": [
    ...NO_TABLE,
    ...COMPLETE_REPLACEMENT,
    `add set ${S} service-ips { type mark; }`,
  ],
  "a lost mark, and a replacement table with a map of another type": [
    `delete chain ${T} isthmus-layout-1`,
    ...REPLACEMENT,
    `add set ${S} eps { type mark; }`,
  ],
  "no table, and a replacement table at other hooks": [
    ...NO_TABLE,
    ...COMPLETE_REPLACEMENT,
    `add chain ${S} nat-prerouting { type filter hook input priority 5; }`,
  ],
};

/** Changes that affect no packet are left. */
const LEFT: Readonly<Record<string, readonly string[]>> = {
  "an unowned set": [`add set ${T} mine { type ipv4_addr; }`, `add element ${T} mine { 192.0.2.1 }`],
  "chains of shapes that no plan makes": ["lb-99999999", "lb-0", "extl-3", "lb-4000000000", "lb-65537"].map(
    (name) => `add chain ${T} ${name}`,
  ),
  "affinity of times that no Service has": ["affinity-99999", "affinity-0"].map(
    (name) => `add set ${T} ${name} { type ${FRONT_END}; }`,
  ),
};

let bed: Bed;
before(async () => {
  bed = await Bed.open(NAME);
});
after(() => bed[Symbol.asyncDispose]());

function nft(args: readonly string[], input = ""): string {
  return execFileSync("ip", ["netns", "exec", `${NAME}-node`, "nft", ...args], {
    encoding: "utf8",
    input,
    stdio: ["pipe", "pipe", "pipe"],
  });
}

function stateOf(): WantedState {
  const services = new WantedTable();
  const ports = [1, 2, 3].map((count) => ({
    port: servicePort(4, { portName: `${count}`, port: 8000 + count, affinitySeconds: count === 3 ? 60 : 0 }),
    endpoints: Array.from({ length: count }, () => endpoint(4, "remote")),
  }));
  services.set("ns/svc", planService(ports, NODE, []));
  return {
    services,
    nodePortIPs: new Set([addressBytes(addressesOf(4).node)]),
    serviceCIDRs: [addressesOf(4).serviceCIDR],
  };
}

/** All of it, in an order of its own: that of chains and sets says nothing. A seal is of the kernel's handles, which each making draws anew. */
function linesOf(): string[] {
  const listed = nft(["list", "ruleset", "ip"]).replaceAll(/(?<=chain isthmus-rules-)[0-9a-f]{16}/g, "digest");
  return listed.split("\n").sort();
}

/** As the runner has it: tried again after a refusal. */
async function persist(plane: DataPlane, state: WantedState): Promise<void> {
  for (let attempt = 1; attempt < MAX_ATTEMPTS; attempt += 1) {
    try {
      await plane.sync(state);
      return;
    } catch (error) {
      if (!(error instanceof NftError) && !isKernelError(error)) throw error;
    }
  }
  await plane.sync(state);
}

/** The tracker of the plane that was opened last. */
let generations: GenerationTracker;

function open(): DataPlane {
  generations = new GenerationTracker(bed.elements);
  return new DataPlane(
    { nft: bed.nft, elements: bed.elements, generations, clock: systemClock, log: nullLogger },
    { ...ruleOptions(4), tableName: "kube-proxy" },
  );
}

const HOW = {
  restart: () => open(),
  // As the watch does it: what changed until now is acknowledged, and the sync compares everything.
  repair: (plane: DataPlane) => {
    generations.settle();
    plane.distrust();
    return plane;
  },
} as const;

for (const [how, next] of Object.entries(HOW)) {
  for (const [what, script] of Object.entries({ ...MENDED, ...LEFT })) {
    const isLeft = what in LEFT;
    const claim = isLeft ? "is no hindrance" : "makes of it what it would make of nothing";
    test(`DataPlane: ${what}: a ${how} ${claim}`, async () => {
      nft(["flush", "ruleset"]);
      const state = stateOf();
      const plane = open();
      await plane.sync(state);
      const wanted = linesOf();
      nft(["-f", "-"], script.join("\n"));
      await persist(next(plane), state);
      const seen = linesOf();
      if (isLeft)
        assert.deepEqual(
          wanted.filter((line) => !seen.includes(line)),
          [],
        );
      else assert.deepEqual(seen, wanted);
      assert.equal((await open().sync(state)).changes, 0);
    });
  }
}

test("DataPlane: an unowned chain in its table is damage that shows without a listing of elements", async () => {
  nft(["flush", "ruleset"]);
  const plane = open();
  await plane.sync(stateOf());
  assert.equal(plane.isDamaged(), false);
  nft(["add", "chain", "ip", "kube-proxy", "evil", "{ type filter hook input priority 0; policy drop; }"]);
  assert.equal(plane.isDamaged(), true);
  plane.distrust();
  await plane.sync(stateOf());
  assert.equal(plane.isDamaged(), false);
});

test("DataPlane: ServiceCIDRs that overlap, are given twice or are adjacent are all in force", async () => {
  nft(["flush", "ruleset"]);
  const wide = ["172.30.0.0/16", "172.30.4.0/24", "172.30.0.0/16", "172.31.0.0/16", "10.0.0.0/8", "10.0.0.1/32"];
  const plane = open();
  for (const serviceCIDRs of [wide, wide.slice(1), [], wide.toReversed()].map((all) =>
    all.map((one) => Cidr.parse(one)),
  )) {
    await plane.sync({ ...stateOf(), serviceCIDRs });
  }
  const listed = nft([
    "get",
    "element",
    "ip",
    "kube-proxy",
    "service-cidrs",
    "{ 172.30.4.1, 172.31.255.255, 10.9.9.9 }",
  ]);
  assert.match(listed, /172\.30/);
});

test("DataPlane: a table that another start made since the check is not deleted, and is in force at every moment", async () => {
  nft(["flush", "ruleset"]);
  const state = stateOf();
  await open().sync(state);
  const wanted = linesOf();
  let looks = 0;
  let transactions = 0;
  const late = new DataPlane(
    {
      nft: overridden(bed.nft, {
        run: (changes: Parameters<Nft["run"]>[0]) => {
          bed.nft.run(changes);
          transactions += 1;
          const listed = nft(["list", "table", "ip", "kube-proxy"]);
          for (const part of ["172.30.0.41 . tcp . 8001 comment", "isthmus-complete"])
            assert.ok(listed.includes(part), listed);
        },
      }),
      elements: overridden(bed.elements, {
        names: (table: ElementTable) => {
          looks += 1;
          return looks <= LOOKS ? undefined : bed.elements.names(table);
        },
      }),
      generations: new GenerationTracker(bed.elements),
      clock: systemClock,
      log: nullLogger,
    },
    { ...ruleOptions(4), tableName: "kube-proxy" },
  );
  await persist(late, stateOf());
  assert.ok(looks > LOOKS && transactions > 1, JSON.stringify({ looks, transactions }));
  await open().sync(state);
  assert.deepEqual(linesOf(), wanted);
});
