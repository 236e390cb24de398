import assert from "node:assert/strict";
import { mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { createLogger } from "#base/log";
import { EVE_DEFAULTS, parseGlobalConfig, parseNetworkStatus } from "./eve-documents.ts";
import { EveInputs, UplinkConfigError } from "./index.ts";

const port = (name: string, rest: Readonly<Record<string, unknown>> = {}) => ({
  IfName: name,
  IsMgmt: true,
  IsL3Port: true,
  Cost: 0,
  Up: true,
  InvalidConfig: false,
  AddrInfoList: [{ Addr: "192.0.2.5", Geo: {}, LastGeoTimestamp: "0001-01-01T00:00:00Z" }, { Addr: "fe80::1" }],
  DNSServers: ["192.0.2.53"],
  DefaultRouters: ["192.0.2.1", "fe80::99"],
  LastFailed: "0001-01-01T00:00:00Z",
  LastSucceeded: "2026-06-01T10:00:00.123456789Z",
  LastError: "",
  LastWarning: "",
  ...rest,
});
const status = (...ports: readonly unknown[]): string => JSON.stringify({ Version: 1, State: 4, Ports: ports });
const item = (IntValue: number) => ({ Key: "", ItemType: 1, IntValue, StrValue: "", BoolValue: false });
const globalConfig = (settings: Readonly<Record<string, unknown>>): string =>
  JSON.stringify({ GlobalSettings: settings, AgentSettings: {} });

test("parseNetworkStatus: ports become uplinks in their order; keys that are not used are passed over", () => {
  const failed = {
    Cost: 7,
    IsMgmt: false,
    InvalidConfig: true,
    LastFailed: "2026-06-01T11:00:00Z",
    LastError: "no DHCP",
  };
  const [first, second, third] = parseNetworkStatus(
    status(port("eth0"), port("wwan0", failed), port("vlan1", { IsL3Port: false })),
    "f",
  );
  assert.deepEqual(JSON.parse(JSON.stringify(first)), {
    name: "eth0",
    interface: "eth0",
    cost: 0,
    management: true,
    weight: 1,
    mode: "external",
    addresses: [
      { address: "192.0.2.5", prefixLength: 32 },
      { address: "fe80::1", prefixLength: 128 },
    ],
    gateway4: "192.0.2.1",
    gateway6: "fe80::99",
    dnsServers: ["192.0.2.53"],
    searchDomains: [],
    status: { lastSucceeded: Date.UTC(2026, 5, 1, 10) + 123, lastError: "", lastWarning: "" },
    published: { isL3: true, isValid: true, isUp: true },
  });
  assert.deepEqual(
    [second?.management, second?.published?.isValid, second?.status.lastError],
    [false, false, "no DHCP"],
  );
  assert.deepEqual([third?.management, third?.published?.isL3], [false, false]);
});

test("parseNetworkStatus: before version 1 every port that does IP is for management", () => {
  const document = JSON.stringify({
    Ports: [port("eth0", { IsMgmt: false }), port("eth1", { IsMgmt: false, IsL3Port: false })],
  });
  assert.deepEqual(
    parseNetworkStatus(document, "f").map(({ management }) => management),
    [true, false],
  );
});

test("parseNetworkStatus: null lists, unset and mapped addresses, and a port named twice are read as EVE means them", () => {
  const odd = port("eth0", {
    AddrInfoList: null,
    DNSServers: ["", "::ffff:192.0.2.9", "0.0.0.0"],
    DefaultRouters: null,
  });
  const [only, ...more] = parseNetworkStatus(status(odd, port("eth0"), port("")), "f");
  assert.deepEqual(more, []);
  assert.deepEqual([only?.addresses, only?.dnsServers.map(String), only?.gateway4], [[], ["192.0.2.9"], undefined]);
  assert.deepEqual(parseNetworkStatus(JSON.stringify({ Version: 1, Ports: null }), "f"), []);
});

test("parseGlobalConfig: maximum cost and dial timeout, their defaults, and zero as the default", () => {
  const read = (settings: Readonly<Record<string, unknown>>) =>
    parseGlobalConfig(globalConfig(settings), "f", EVE_DEFAULTS);
  assert.deepEqual(read({}), EVE_DEFAULTS);
  assert.deepEqual(read({ "network.download.max.cost": item(9), "timer.dial.timeout": item(30) }), {
    maxCost: 9,
    dialTimeoutMs: 30_000,
    zeroTimer: false,
  });
  assert.deepEqual(read({ "timer.dial.timeout": item(0) }), { maxCost: 0, dialTimeoutMs: 10_000, zeroTimer: true });
  assert.deepEqual(read({ "network.download.max.cost": item(256), "timer.dial.timeout": item(3601) }), EVE_DEFAULTS);
  assert.equal(read({ "network.download.max.cost": 3 }).maxCost, 3);
  assert.equal(parseGlobalConfig('{"network.download.max.cost": {"IntValue": 4}}', "f", EVE_DEFAULTS).maxCost, 4);
});

function setUp(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-eve-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const [statusFile, globalConfigFile] = [join(folder, "status.json"), join(folder, "global.json")];
  const lines: Record<string, unknown>[] = [];
  const clock = new FakeClock();
  const log = createLogger({ name: "eve", write: (line) => void lines.push(JSON.parse(line)) });
  const inputs = new EveInputs({ log, clock }, { statusFile, globalConfigFile });
  const controller = new AbortController();
  const running = inputs.run({ signal: controller.signal });
  t.after(async () => {
    controller.abort();
    await running;
  });
  const put = async (path: string, text: string | undefined): Promise<void> => {
    if (text === undefined) rmSync(path);
    else {
      writeFileSync(`${path}.new`, text);
      renameSync(`${path}.new`, path);
    }
    await clock.advance(1000);
  };
  return { inputs, lines, put, statusFile, globalConfigFile };
}

test("EveInputs: ready once both documents were seen; a deleted status empties the list, a deleted configuration changes nothing", async (t) => {
  const { inputs, put, statusFile, globalConfigFile } = setUp(t);
  let reported = 0;
  using _listening = inputs.onChange(() => {
    reported += 1;
  });
  const state = () => {
    const { ready, settings } = inputs.current;
    return [ready, settings.uplinks.length, settings.maxCost, settings.dialTimeoutMs];
  };
  assert.deepEqual(state(), [false, 0, 0, 10_000]);
  assert.equal(inputs.current.settings.routing.manage, false);
  await put(statusFile, status(port("eth0"), port("eth1")));
  assert.deepEqual(state(), [false, 2, 0, 10_000]);
  await put(globalConfigFile, globalConfig({ "network.download.max.cost": item(5), "timer.dial.timeout": item(4) }));
  assert.deepEqual(state(), [true, 2, 5, 4000]);
  await put(statusFile, undefined);
  assert.deepEqual(state(), [true, 0, 5, 4000]);
  await put(globalConfigFile, undefined);
  assert.deepEqual(state(), [true, 0, 5, 4000]);
  await put(statusFile, status(port("eth0")));
  assert.deepEqual(state(), [true, 1, 5, 4000]);
  assert.equal(reported, 5);
});

test("EveInputs: a document that is broken changes nothing and is reported; a zero timer is reported once", async (t) => {
  const { inputs, put, statusFile, globalConfigFile, lines } = setUp(t);
  await put(statusFile, status(port("eth0")));
  await put(globalConfigFile, globalConfig({ "timer.dial.timeout": item(0) }));
  await put(globalConfigFile, globalConfig({ "timer.dial.timeout": item(0), "network.download.max.cost": item(1) }));
  assert.equal(lines.filter(({ msg }) => String(msg).includes("timer.dial.timeout is 0")).length, 1);
  await put(statusFile, '{"Ports": [');
  assert.equal(inputs.current.settings.uplinks.length, 1);
  assert.match(inputs.current.error ?? "", /status\.json is not JSON/);
  await put(statusFile, status(port("eth0", { Cost: "cheap" })));
  assert.match(inputs.current.error ?? "", /Ports\[0\]\.Cost/);
  await put(statusFile, status());
  assert.deepEqual([inputs.current.settings.uplinks.length, inputs.current.error], [0, undefined]);
});

test("parseNetworkStatus, parseGlobalConfig: whatever is published, it is taken or refused with our error (fuzz)", () => {
  const check = (source: string): void => {
    for (const read of [() => parseNetworkStatus(source, "f"), () => parseGlobalConfig(source, "f", EVE_DEFAULTS)]) {
      try {
        read();
      } catch (error) {
        if (!(error instanceof UplinkConfigError)) throw error;
      }
    }
  };
  fc.assert(fc.property(fc.string({ maxLength: 100 }), check));
  fc.assert(fc.property(fc.json(), check));
  const anything = fc.oneof(fc.jsonValue(), fc.string());
  const keys = Object.keys(port("eth0"));
  fc.assert(
    fc.property(fc.constantFrom(...keys), anything, (key, value) => check(status(port("eth0", { [key]: value })))),
    { numRuns: 500 },
  );
  fc.assert(
    fc.property(anything, (value) =>
      check(globalConfig({ "network.download.max.cost": value, "timer.dial.timeout": value })),
    ),
  );
});
