import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DEFAULT_SETTINGS } from "#base/uplink-model";
import { character } from "#test/characters";
import { parseSettings, UplinkConfigError } from "./index.ts";

/** The example of docs/spec/uplink-proxy.md#2.2, whole. */
const EXAMPLE = {
  version: 1,
  maxCost: 0,
  dialTimeoutMs: 10000,
  uplinks: [
    {
      name: "lan0",
      interface: "eth0",
      cost: 0,
      management: true,
      weight: 1,
      addresses: ["192.0.2.10/24"],
      gateway4: "192.0.2.1",
      gateway6: null,
      dnsServers: ["192.0.2.53"],
      searchDomains: ["lan.example"],
      mode: "static",
      status: { lastFailed: null, lastSucceeded: null, lastError: "" },
    },
    { name: "lte", interface: "wwan0", cost: 10, mode: "observe" },
  ],
  routing: {
    manage: true,
    tableBase: 500,
    rulePriority: 15000,
    localRulePriority: 0,
    kubeRulePriority: 13000,
    podCIDRs: ["10.42.0.0/16"],
    serviceCIDRs: ["10.43.0.0/16"],
    routeProtocol: 157,
    cleanupOnExit: false,
  },
  probe: {
    intervalMs: 15000,
    timeoutMs: 3000,
    failAfter: 3,
    recoverAfter: 2,
    maxCost: 0,
    targets: [{ type: "tcp", host: "203.0.113.80", port: 443 }],
  },
  listeners: [
    { name: "host", role: "host", address: "127.0.0.1", port: 5443 },
    {
      name: "pods",
      role: "pod",
      address: "169.254.100.1",
      port: 5443,
      interface: "cni0",
      assignAddress: true,
      auth: "token",
      tls: "optional",
    },
  ],
  cluster: { nodeIP: "10.244.244.2", prefixLength: 24 },
  limits: {},
  tunnel: {},
  dns: {},
  selection: {},
  transparent: { enabled: false },
} as const;

const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));
const parse = (value: unknown) => parseSettings(JSON.stringify(value), "uplinks.json");

function faultsOf(value: unknown): string[] {
  try {
    parse(value);
  } catch (error) {
    assert.ok(error instanceof UplinkConfigError && error.code === "invalid", String(error));
    return error.message.replace(/^uplinks\.json: /, "").split("; ");
  }
  return [];
}

test("parseSettings: takes the specification's example, in JSON and in YAML, and fills in the defaults", () => {
  const { settings, refused, notes } = parse(EXAMPLE);
  assert.deepEqual([refused, notes], [[], []]);
  assert.deepEqual(plain(settings.uplinks), [
    {
      name: "lan0",
      interface: "eth0",
      cost: 0,
      management: true,
      weight: 1,
      mode: "static",
      addresses: [{ address: "192.0.2.10", prefixLength: 24 }],
      gateway4: "192.0.2.1",
      dnsServers: ["192.0.2.53"],
      searchDomains: ["lan.example"],
      status: { lastError: "", lastWarning: "" },
    },
    {
      name: "lte",
      interface: "wwan0",
      cost: 10,
      management: true,
      weight: 1,
      mode: "observe",
      addresses: [],
      dnsServers: [],
      searchDomains: [],
      status: { lastError: "", lastWarning: "" },
    },
  ]);
  const { routing, limits, tunnel, dns, selection, transparent } = DEFAULT_SETTINGS;
  assert.deepEqual(plain(settings.routing), plain(routing));
  assert.deepEqual([settings.limits, settings.tunnel, settings.dns], [limits, tunnel, dns]);
  assert.deepEqual([settings.selection, settings.transparent], [selection, transparent]);
  assert.deepEqual(
    settings.listeners.map(({ name, auth, tls, allowedPorts }) => [name, auth, tls, allowedPorts]),
    [
      ["host", "none", "off", []],
      ["pods", "token", "optional", [443, 5000, 8443]],
    ],
  );
  const yaml = "version: 1\nmaxCost: 3\nuplinks:\n  - { name: lan0, interface: eth0 } # free\n";
  const read = parseSettings(yaml, "uplinks.yaml").settings;
  assert.equal(read.maxCost, 3);
  assert.equal(read.uplinks[0]?.mode, "observe");
});

test("parseSettings: a file with nothing but its version is a whole configuration", () => {
  assert.deepEqual(plain(parse({ version: 1 }).settings), plain(DEFAULT_SETTINGS));
});

test("parseSettings: all faults are reported together, each with its path and the right form", () => {
  assert.deepEqual(
    faultsOf({
      version: 2,
      maxcost: 1,
      verbose: true,
      uplinks: [
        { name: "a b", interface: "eth0", cost: 300, addresses: ["192.0.2.10"], gateway4: "fd00::1", colour: "red" },
        { interface: "a-much-too-long-name", mode: "dynamic" },
      ],
      routing: { podCIDRs: ["10.42.0.0"] },
      probe: {
        targets: [
          { type: "icmp" },
          { type: "tcp", host: "a" },
          { type: "http", url: "https://a/", body: "", caFile: "ca.pem" },
        ],
      },
      listeners: [{ role: "host", address: "0.0.0.0", port: 0 }],
      limits: [],
      transparent: { enabled: "yes" },
    }),
    [
      "version: must be 1, not 2",
      "uplinks[0].name: must be 1 to 64 letters, digits, '-', '_' or '.', not \"a b\"",
      "uplinks[0].cost: must be a cost from 0 to 255, not 300",
      'uplinks[0].addresses[0]: must be an address with a prefix length, such as 192.0.2.10/24, not "192.0.2.10"',
      "uplinks[1].name: is missing",
      "uplinks[1].interface: must be the name of an interface: 1 to 15 characters, no space, '/' or ':', not \"a-much-too-long-name\"",
      'uplinks[1].mode: must be "static", "observe" or "external", not "dynamic"',
      'routing.podCIDRs[0]: must be a prefix, such as 10.42.0.0/16, not "10.42.0.0"',
      'probe.targets[0].type: must have a type: "tcp", "http" or "dns", not "icmp"',
      "probe.targets[1].port: is missing",
      'probe.targets[2].body: must not be empty, not ""',
      'probe.targets[2].caFile: must be an absolute path, not "ca.pem"',
      'listeners[0].address: must be one address: a wildcard would accept clients from every network, not "0.0.0.0"',
      "listeners[0].port: must be a port from 1 to 65535, not 0",
      "limits: must be a mapping, not a list",
      'transparent.enabled: must be true or false, not "yes"',
      "uplinks[0].colour: is not a known key",
      "remove it or correct its spelling",
      "maxcost: is not a known key",
      "remove it or correct its spelling",
      "verbose: is not a known key",
      "remove it or correct its spelling",
    ],
  );
});

test("parseSettings: values are checked against each other: names, families, listeners, bounds of each other", () => {
  assert.deepEqual(
    faultsOf({
      version: 1,
      uplinks: [
        { name: "a", interface: "eth0", gateway4: "fd00::1" },
        { name: "a", interface: "eth1", mode: "static" },
      ],
      listeners: [{ role: "host" }, { role: "host", name: "two" }],
      dns: { minTtlMs: 10, maxTtlMs: 5 },
      selection: { penaltyMs: 700_000 },
    }),
    [
      "uplinks[0].gateway4: fd00::1 is not IPv4",
      'uplinks[1].name: "a" is also the name of uplinks[0]',
      "use different names",
      "uplinks[1].addresses: is missing: a static uplink needs addresses",
      'list them, or set mode to "observe"',
      "dns.minTtlMs: must not be above dns.maxTtlMs, 5",
      "selection.penaltyMs: must not be above selection.penaltyMaxMs, 600000",
      "listeners[1]: 127.0.0.1 port 5443 is used by another listener",
      "choose another port",
    ],
  );
});

test("parseSettings: the host's listener is on loopback alone, and a prefix is no longer than its address", () => {
  assert.deepEqual(
    faultsOf({
      version: 1,
      listeners: [{ role: "host", address: "192.0.2.10" }],
      cluster: { nodeIP: "192.0.2.10", prefixLength: 64 },
    }),
    [
      "cluster.prefixLength: must be at most 32 for 192.0.2.10, not 64",
      'listeners[0].address: must be a loopback address, such as 127.0.0.1, for role "host", not 192.0.2.10',
    ],
  );
  const both = parse({ version: 1, listeners: [{ role: "host" }, { role: "host", name: "six", address: "::1" }] });
  assert.equal(both.settings.listeners.length, 2);
});

test("parseSettings: transparent mode refuses a table that has another owner", () => {
  for (const [table, whose] of [
    [254, "the main table"],
    [255, "the local table"],
    [400, "the table of Services"],
    [502, "used for an uplink: tables of uplinks begin above routing.tableBase, 500"],
  ] as const) {
    const wanted = [`transparent.table: ${table} is ${whose}`, "choose a table that nothing uses, such as 499"];
    assert.deepEqual(faultsOf({ version: 1, transparent: { enabled: true, table } }), wanted);
  }
  assert.equal(parse({ version: 1, transparent: { enabled: true, table: 498 } }).settings.transparent.table, 498);
});

test("parseSettings: the second of two uplinks with one source address is left out with a reason, the rest is in force", () => {
  const { settings, refused } = parse({
    version: 1,
    maxCost: 4,
    uplinks: [
      { name: "a", interface: "eth0", mode: "static", addresses: ["192.0.2.10/24", "2001:db8::10/64"] },
      { name: "b", interface: "eth1", mode: "static", addresses: ["198.51.100.10/24", "2001:db8:0::10/48"] },
      { name: "c", interface: "eth0" },
      { name: "d", interface: "eth2" },
    ],
  });
  assert.deepEqual(
    settings.uplinks.map(({ name }) => name),
    ["a", "d"],
  );
  assert.equal(settings.maxCost, 4);
  assert.deepEqual(refused, [
    "uplink b is ignored: uplink a has the same source address 2001:db8::10; use different ones",
    "uplink c is ignored: uplink a has the same interface eth0; use different ones",
  ]);
});

test("parseSettings: transparent mode brings its two listeners along", () => {
  const { listeners } = parse({ version: 1, transparent: { enabled: true, port: 4000 } }).settings;
  assert.deepEqual(
    listeners.map(({ name, role, address, port }) => [name, role, String(address), port]),
    [
      ["host", "host", "127.0.0.1", 5443],
      ["transparent4", "transparent", "127.0.0.1", 4000],
      ["transparent6", "transparent", "::1", 4000],
    ],
  );
  assert.match(
    faultsOf({ version: 1, transparent: { enabled: true, port: 5443 } }).join(),
    /transparent\.port: 127\.0\.0\.1 port 5443/,
  );
});

test("parseSettings: a dial timeout of zero is the default, with a note", () => {
  const { settings, notes } = parse({ version: 1, dialTimeoutMs: 0 });
  assert.equal(settings.dialTimeoutMs, 10_000);
  assert.deepEqual(notes, ["dialTimeoutMs is 0; the default of 10000 ms is used instead"]);
});

test("parseSettings: times of a status are milliseconds, RFC 3339 or null", () => {
  const { settings } = parse({
    version: 1,
    uplinks: [
      { name: "a", interface: "eth0", status: { lastFailed: "2026-06-01T10:00:00.5Z", lastSucceeded: 5 } },
      { name: "b", interface: "eth1", status: { lastFailed: null } },
    ],
  });
  assert.deepEqual(settings.uplinks[0]?.status, {
    lastFailed: Date.UTC(2026, 5, 1, 10) + 500,
    lastSucceeded: 5,
    lastError: "",
    lastWarning: "",
  });
  assert.deepEqual(settings.uplinks[1]?.status, { lastError: "", lastWarning: "" });
  assert.equal(
    faultsOf({ version: 1, uplinks: [{ name: "a", interface: "e", status: { lastFailed: "today" } }] }).length,
    1,
  );
});

test("parseSettings: text that is neither JSON nor YAML is refused with its line; aliases are not expanded", () => {
  assert.throws(() => parseSettings("version: 1\nuplinks: [\n", "f"), {
    name: "UplinkConfigError",
    message: /^f: line \d: /,
  });
  assert.throws(() => parseSettings("version: 1\nversion: 1\n", "f"), { code: "invalid", message: /unique/ });
  assert.throws(() => parseSettings("a: &a [1]\nb: *a\n", "f"), { code: "invalid", message: /aliases/ });
  assert.throws(() => parseSettings("", "f"), { code: "invalid" });
  assert.throws(() => parseSettings("[]", "f"), { message: "f: the file must be a mapping, not a list" });
});

test("parseSettings: of many faults some are listed and the rest counted", () => {
  const unknown = Object.fromEntries(Array.from({ length: 50 }, (_, at) => [`key${at}`, at]));
  const faults = faultsOf({ version: 1, ...unknown });
  assert.equal(faults.filter((fault) => fault.startsWith("key")).length, 20);
  assert.match(faults.at(-1) ?? "", /^and \d+ other faults$/);
});

test("parseSettings: any file is accepted or refused with our error (fuzz)", () => {
  const check = (source: string): void => {
    try {
      const { settings } = parseSettings(source, "f");
      assert.ok(settings.maxCost >= 0 && settings.maxCost <= 255);
      assert.ok(settings.dialTimeoutMs >= 1);
    } catch (error) {
      if (!(error instanceof UplinkConfigError)) throw error;
    }
  };
  fc.assert(fc.property(fc.string({ unit: character, maxLength: 200 }), check), { numRuns: 500 });
  fc.assert(fc.property(fc.json(), check), { numRuns: 500 });
  // The example with one value, somewhere, replaced by anything.
  const paths = leaves(EXAMPLE, []);
  const mutated = fc.tuple(
    fc.constantFrom(...paths),
    fc.oneof(fc.jsonValue({ maxDepth: 1 }), fc.string(), fc.double(), fc.integer()),
  );
  fc.assert(
    fc.property(mutated, ([path, value]) => check(JSON.stringify(replaceAt(plain(EXAMPLE), path, value)))),
    { numRuns: 300 },
  );
});

function leaves(value: unknown, path: readonly string[]): (readonly string[])[] {
  if (typeof value !== "object" || value === null) return [path];
  return [path, ...Object.entries(value).flatMap(([key, inner]) => leaves(inner, [...path, key]))];
}

function replaceAt(root: unknown, path: readonly string[], value: unknown): unknown {
  const [key, ...rest] = path;
  if (key === undefined) return value;
  const copy: Record<string, unknown> = { ...(root as Record<string, unknown>) };
  copy[key] = replaceAt(copy[key], rest, value);
  return Array.isArray(root) ? Object.values(copy) : copy;
}
