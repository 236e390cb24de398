/** The estates of all programs. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { FlagSet, FlagValues } from "#base/config";
import { acceptClaims, claimText, decodeSets, type Estate, encodeSets } from "#base/estate";
import { DEFAULT_SETTINGS } from "#base/uplink-model";
import { settingsOfClaims } from "#features/uplink-routing";
import { uplinkProxyEstate } from "../../daemons/uplink-proxy/estate.ts";
import { publicPrograms } from "../../programs.ts";

async function estates(): Promise<ReadonlyMap<string, Estate>> {
  const programs = await Promise.all(Array.from(publicPrograms().values(), ({ load }) => load()));
  return new Map(
    programs.flatMap(({ name, estate, flags }) => {
      const initial = Object.fromEntries(Object.entries(flags).map(([key, flag]) => [key, flag.initial]));
      return estate === undefined ? [] : [[name, estate(initial as FlagValues<FlagSet>)] as const];
    }),
  );
}

test("estates: that of each program of a node can be written, read, and is accepted as its own", async () => {
  const all = await estates();
  for (const name of [
    "coild",
    "coil-router",
    "service-proxy",
    "uplink-proxy",
    "proxy-agent",
    "nic-agent",
    "coil-egress",
    "node",
  ])
    assert.ok(all.has(name), name);
  for (const [name, estate] of all) {
    const kernel = estate.kernel.flatMap(({ claims }) => claims);
    const set = { boot: "b", netns: "1", kernel, files: estate.files.map(({ path }) => path) };
    const decoded = decodeSets(name, encodeSets(name, [set]));
    assert.deepEqual(decoded, [JSON.parse(JSON.stringify(set))], name);
    const { refused } = acceptClaims(estate, decoded[0] ?? assert.fail(), { isRoots: false });
    assert.deepEqual(refused, [], name);
  }
});

test("estates: no mark of the host is that of two programs", async () => {
  const owners = new Map<string, string>();
  for (const [name, { kernel }] of await estates()) {
    for (const claim of kernel.flatMap(({ claims }) => claims)) {
      if (claim.in !== undefined || claim.kind === "sysctl") continue;
      const mark = claimText(claim);
      assert.equal(owners.get(mark) ?? name, name, mark);
      owners.set(mark, name);
    }
  }
  assert.ok(owners.size > 30);
});

test("settingsOfClaims: the settings of an estate have the numbers with which it was made", () => {
  const paths = { runDir: "/run", secretsDir: "/x", controlSocket: "", offSwitch: "" };
  const { routing, transparent } = DEFAULT_SETTINGS;
  const settings = {
    ...DEFAULT_SETTINGS,
    routing: {
      ...routing,
      tableBase: 3000,
      rulePriority: 21,
      kubeRulePriority: 22,
      localRulePriority: 23,
      routeProtocol: 99,
    },
    transparent: { ...transparent, table: 777, mark: 0x77, rulePriority: 24 },
  };
  const claimsOf = (one: typeof settings, parts: "all" | "proxy" = "all") =>
    uplinkProxyEstate({ ...paths, parts }, one).kernel.flatMap(({ claims }) => claims);
  const claims = claimsOf(settings);
  const read = settingsOfClaims(claims);
  assert.deepEqual([read.routing, read.transparent], [settings.routing, settings.transparent]);
  assert.deepEqual(claimsOf(read), claims);
  assert.deepEqual(
    read.listeners.map(({ role, address, interface: at }) => [role, String(address), at]),
    [["pod", "169.254.100.1", "cni0"]],
  );
  const none = settingsOfClaims([]);
  assert.deepEqual([none.routing, none.transparent, none.listeners], [routing, transparent, []]);
  assert.deepEqual(claimsOf(settings, "proxy"), []);
});
