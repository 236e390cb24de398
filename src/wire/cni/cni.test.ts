import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { character } from "#test/characters";
import {
  CniError,
  cniErrorJson,
  compareVersions,
  convertResult,
  HIGHEST_VERSION,
  parseCniArgs,
  parseCniCall,
  parseNetworkConfig,
  parseResult,
  SUPPORTED_VERSIONS,
  versionJson,
} from "./index.ts";

const ENV = { CNI_COMMAND: "ADD", CNI_CONTAINERID: "c1", CNI_NETNS: "/run/netns/x", CNI_IFNAME: "eth0" };
const CONFIG = { cniVersion: "1.0.0", name: "net", type: "coil" };
const parse = (config: object) => parseNetworkConfig(JSON.stringify(config));
const refused = (cniCode: number, message: RegExp | string) => ({ name: "CniError", cniCode, message });

/** Runs work that may throw CniError and nothing else. */
function onlyCniErrors(work: () => unknown): void {
  try {
    work();
  } catch (error) {
    assert.ok(error instanceof CniError, String(error));
  }
}

test("parseCniCall: the variables of each command; all missing ones are named at once", () => {
  assert.deepEqual(parseCniCall(ENV), {
    command: "ADD",
    containerId: "c1",
    netns: "/run/netns/x",
    ifname: "eth0",
    args: {},
    path: "",
  });
  const missing = (names: string): RegExp => new RegExp(`^required env variables \\[${names}\\] missing$`);
  const cases: [string, string][] = [
    ["ADD", "CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME"],
    ["CHECK", "CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME"],
    ["DEL", "CNI_CONTAINERID,CNI_IFNAME"],
  ];
  for (const [command, names] of cases) {
    assert.throws(() => parseCniCall({ CNI_COMMAND: command }), refused(4, missing(names)));
    assert.throws(
      () => parseCniCall({ CNI_COMMAND: command, CNI_CONTAINERID: "", CNI_NETNS: "", CNI_IFNAME: "" }),
      refused(4, missing(names)),
    );
  }
  assert.equal(parseCniCall({ ...ENV, CNI_COMMAND: "DEL", CNI_NETNS: "" }).netns, "");
});

test("parseCniCall: the table of checks of the CNI specification, code 4 each", () => {
  const bad: Record<string, string>[] = [
    { CNI_COMMAND: "FOO" },
    { CNI_COMMAND: "" },
    { CNI_COMMAND: "toString" },
    { CNI_CONTAINERID: "-a" },
    { CNI_CONTAINERID: "a/b" },
    { CNI_CONTAINERID: "a b" },
    { CNI_CONTAINERID: "\u00e4" },
    { CNI_IFNAME: "." },
    { CNI_IFNAME: ".." },
    { CNI_IFNAME: "a/b" },
    { CNI_IFNAME: "a:b" },
    { CNI_IFNAME: "a\tb" },
    { CNI_IFNAME: "sixteencharacter" },
    { CNI_IFNAME: "\u00e4".repeat(8) },
    { CNI_ARGS: "novalue" },
    { CNI_ARGS: "=x" },
    { CNI_ARGS: "UNKNOWN=1" },
  ];
  for (const change of bad)
    assert.throws(() => parseCniCall({ ...ENV, ...change }), { name: "CniError", cniCode: 4 }, JSON.stringify(change));
  assert.equal(parseCniCall({ ...ENV, CNI_IFNAME: "fifteencharacte" }).ifname, "fifteencharacte");
});

test("parseCniArgs: pairs, values with equal signs, unknown keys only with IgnoreUnknown", () => {
  assert.deepEqual(parseCniArgs("K8S_POD_NAME=a=b;;K8S_POD_NAMESPACE="), {
    K8S_POD_NAME: "a=b",
    K8S_POD_NAMESPACE: "",
  });
  for (const yes of ["1", "true", "True", "TRUE"]) assert.equal(parseCniArgs(`X=1;IgnoreUnknown=${yes}`)["X"], "1");
  for (const no of ["0", "false", "yes", ""]) {
    assert.throws(
      () => parseCniArgs(`X=1;Y=2;IgnoreUnknown=${no}`),
      refused(4, "CNI_ARGS has unknown keys: X, Y (IgnoreUnknown=1 allows them)"),
    );
  }
});

test("parseCniCall: any environment is a call or a CniError", () => {
  const env = fc.dictionary(
    fc.constantFrom(...Object.keys(ENV), "CNI_ARGS"),
    fc.oneof(fc.string({ unit: character }), fc.constantFrom("ADD", "DEL", "a=b;c=d")),
  );
  fc.assert(
    fc.property(env, (one) => onlyCniErrors(() => parseCniCall(one))),
    { numRuns: 1000 },
  );
});

test("parseNetworkConfig: defaults, and a previous result", () => {
  const config = parse(CONFIG);
  const absent = { prevResult: undefined, rawPrevResult: undefined, validAttachments: undefined };
  assert.deepEqual(config, { ...CONFIG, socket: "/run/coild.sock", ...absent });
  const prevResult = { cniVersion: "1.0.0", interfaces: [{ name: "eth0" }], ips: [{ address: "10.0.0.1/24" }] };
  assert.deepEqual(parse({ ...CONFIG, prevResult }).prevResult, {
    interfaces: [{ name: "eth0" }],
    ips: [{ address: "10.0.0.1/24" }],
  });
  assert.equal(parse({ ...CONFIG, prevResult: null }).prevResult, undefined);
});

test("parseNetworkConfig: 6 for a text that is no JSON object, 1 for another version, 7 for a wrong field", () => {
  for (const text of ["", "{", "null", "[]", '"x"', "1"])
    assert.throws(() => parseNetworkConfig(text), { name: "CniError", cniCode: 6 }, text);
  for (const cniVersion of ["0.1.0", "0.3.0", "0.2.0", "2.0.0", "1", ""]) {
    assert.throws(
      () => parse({ ...CONFIG, cniVersion }),
      { cniCode: 1, details: "supported versions: 0.3.1, 0.4.0, 1.0.0, 1.1.0" },
      cniVersion,
    );
  }
  assert.throws(() => parse({ name: "net", type: "coil" }), refused(1, /"0\.1\.0"/));
  const wrong = [
    { name: undefined },
    { name: "-x" },
    { name: 3 },
    { type: "" },
    { type: null },
    { socket: "relative" },
    { socket: 1 },
    { cniVersion: 1 },
  ];
  for (const change of wrong)
    assert.throws(() => parse({ ...CONFIG, ...change }), { name: "CniError", cniCode: 7 }, JSON.stringify(change));
  assert.throws(
    () => parse({ ...CONFIG, name: 3 }),
    refused(7, "network configuration: name is 3; it must be a network name"),
  );
});

test("parseNetworkConfig: any JSON, and any text, is a configuration or a CniError", () => {
  fc.assert(
    fc.property(fc.oneof(fc.json(), fc.string()), (text) => onlyCniErrors(() => parseNetworkConfig(text))),
    { numRuns: 1000 },
  );
  const value = fc.oneof(fc.jsonValue(), fc.constantFrom("1.0.0", "net", "/x"));
  const config = fc.dictionary(fc.constantFrom("cniVersion", "name", "type", "socket", "prevResult"), value);
  fc.assert(
    fc.property(config, (one) => onlyCniErrors(() => parse({ ...CONFIG, ...one }))),
    { numRuns: 1000 },
  );
});

const RESULT = {
  interfaces: [
    { name: "veth1", mac: "02:00:00:00:00:01", mtu: 1450 },
    { name: "eth0", sandbox: "/run/netns/x", mtu: 1450, socketPath: "/s", pciID: "0000:00:1f.6" },
  ],
  ips: [
    { address: "10.0.0.1/32", gateway: "10.0.0.254", interface: 1 },
    { address: "fd00::1/128", interface: 1 },
  ],
  routes: [{ dst: "0.0.0.0/0", gw: "10.0.0.254", mtu: 1400, table: 100 }],
  dns: { nameservers: ["10.0.0.53"] },
};

test("convertResult: 1.1.0 keeps everything, 1.0.0 drops later fields, 0.x also names the IP version", () => {
  const result = parseResult(RESULT);
  assert.deepEqual(convertResult(result, "1.1.0"), { cniVersion: "1.1.0", ...RESULT });
  const older = {
    interfaces: [
      { name: "veth1", mac: "02:00:00:00:00:01" },
      { name: "eth0", sandbox: "/run/netns/x" },
    ],
    routes: [{ dst: "0.0.0.0/0", gw: "10.0.0.254" }],
    dns: RESULT.dns,
  };
  assert.deepEqual(convertResult(result, "1.0.0"), { cniVersion: "1.0.0", ips: RESULT.ips, ...older });
  const [v4, v6] = RESULT.ips;
  for (const cniVersion of ["0.4.0", "0.3.1"]) {
    const ips = [
      { version: "4", ...v4 },
      { version: "6", ...v6 },
    ];
    assert.deepEqual(convertResult(result, cniVersion), { cniVersion, ips, ...older });
  }
  assert.deepEqual(convertResult(parseResult({}), "1.0.0"), { cniVersion: "1.0.0", interfaces: [], ips: [], dns: {} });
});

test("parseResult: reads every version's shape back to the same result", () => {
  for (const version of SUPPORTED_VERSIONS) {
    const once = parseResult(convertResult(parseResult(RESULT), version));
    assert.deepEqual(parseResult(convertResult(once, version)), once);
    assert.deepEqual(once.ips, RESULT.ips);
  }
});

test("parseResult: a wrong field is named, code 6; any JSON is a result or a CniError", () => {
  const cases: [unknown, RegExp][] = [
    [[], /result must be an object/],
    [{ interfaces: {} }, /interfaces must be a list/],
    [{ interfaces: [{}] }, /interfaces\[0\]\.name must be a string/],
    [{ interfaces: [{ name: "a", mtu: -1 }] }, /interfaces\[0\]\.mtu must be a whole number/],
    [{ ips: [{ address: 1 }] }, /ips\[0\]\.address must be/],
    [{ ips: [{ address: "a", interface: 0.5 }] }, /ips\[0\]\.interface must be a whole number/],
    [{ routes: "x" }, /routes must be a list/],
  ];
  for (const [value, message] of cases) assert.throws(() => parseResult(value), refused(6, message));
  const value = fc.oneof(
    fc.constantFrom<unknown>(null, true, 0, -1, 1.5, 2 ** 53, "", "eth0", "10.1.0.1/32", "fd01::1/128", [], {}, [1], {
      name: 1,
    }),
    fc.string({ maxLength: 8 }),
  );
  const entry = fc.dictionary(
    fc.constantFrom("name", "mac", "mtu", "sandbox", "address", "gateway", "interface", "dst", "gw"),
    value,
  );
  const list = fc.array(fc.oneof(entry, value), { maxLength: 4 });
  const result = fc.dictionary(fc.constantFrom("interfaces", "ips", "routes", "dns"), fc.oneof(value, list, entry));
  fc.assert(
    fc.property(result, fc.constantFrom(...SUPPORTED_VERSIONS), (value, version) =>
      onlyCniErrors(() => JSON.stringify(convertResult(parseResult(value), version))),
    ),
    { numRuns: 1000 },
  );
});

test("versions: compared by number, VERSION echoes the requested one", () => {
  assert.deepEqual([...SUPPORTED_VERSIONS].sort((a, b) => -compareVersions(a, b))[0], HIGHEST_VERSION);
  assert.ok(compareVersions("0.10.0", "0.9.1") > 0);
  assert.equal(compareVersions("1.0.0", "1.0.0"), 0);
  assert.deepEqual(JSON.parse(versionJson(undefined)), {
    cniVersion: "1.1.0",
    supportedVersions: ["0.3.1", "0.4.0", "1.0.0", "1.1.0"],
  });
  assert.equal((JSON.parse(versionJson("0.4.0")) as { cniVersion: string }).cniVersion, "0.4.0");
});

test("cniErrorJson: code, msg and, where there are any, details", () => {
  assert.deepEqual(JSON.parse(cniErrorJson(new CniError(11, "later", { details: "why" }), "1.0.0")), {
    cniVersion: "1.0.0",
    code: 11,
    msg: "later",
    details: "why",
  });
  assert.deepEqual(JSON.parse(cniErrorJson(new CniError(4, "bad"), "0.4.0")), {
    cniVersion: "0.4.0",
    code: 4,
    msg: "bad",
  });
});
