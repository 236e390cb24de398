import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { CniFailure } from "./failure.ts";
import { linkSettings, requestedMac } from "./settings.ts";

const bytes = (config: unknown): Uint8Array =>
  new TextEncoder().encode(typeof config === "string" ? config : JSON.stringify(config));

test("linkSettings: name, mtu and runtimeConfig.mac are read; an empty configuration has none", () => {
  const config = { name: "net", mtu: 1400, runtimeConfig: { mac: "0A-58-0a-00-00-01", bandwidth: {} } };
  const { networkName, mtuBytes, mac } = linkSettings(bytes(config));
  assert.deepEqual([networkName, mtuBytes, `${mac}`], ["net", 1400, "0a:58:0a:00:00:01"]);
  const none = { networkName: undefined, mtuBytes: undefined, mac: undefined };
  for (const empty of [
    "",
    {},
    [],
    { runtimeConfig: null },
    { runtimeConfig: {} },
    { runtimeConfig: { mac: "", ips: [] } },
    { runtimeConfig: { mac: null, ips: null } },
    { args: { cni: { mac: "02:00:00:00:00:01", ips: ["10.0.0.1"] } } },
  ]) {
    assert.deepEqual(linkSettings(bytes(empty)), none, JSON.stringify(empty));
  }
});

test("linkSettings: a wrong value is refused with code 7, the field, the value and what it must be", () => {
  for (const [config, text] of [
    ["{", /is not JSON/],
    [{ mtu: 10 }, /mtu is 10; it must be a whole number from 576 to 65535/],
    [{ runtimeConfig: [] }, /runtimeConfig is \[\]; it must be an object/],
    [{ runtimeConfig: { mac: 5 } }, /runtimeConfig\.mac is 5; it must be a unicast MAC address/],
    [{ runtimeConfig: { mac: "02:00:00:00:00" } }, /runtimeConfig\.mac is "02:00:00:00:00"/],
    [{ runtimeConfig: { mac: "02:00:00:00:00:00:00:01" } }, /runtimeConfig\.mac/],
    [{ runtimeConfig: { mac: "01:00:5e:00:00:01" } }, /runtimeConfig\.mac is "01:00:5e:00:00:01"; .*unicast/],
    [{ runtimeConfig: { mac: "ff:ff:ff:ff:ff:ff" } }, /runtimeConfig\.mac/],
    [{ runtimeConfig: { mac: "00:00:00:00:00:00" } }, /runtimeConfig\.mac/],
    [{ runtimeConfig: { ips: ["10.0.0.7/24"] } }, /runtimeConfig\.ips is \["10\.0\.0\.7\/24"\]; .*remove "ips"/],
    [{ runtimeConfig: { ips: "10.0.0.7" } }, /runtimeConfig\.ips/],
  ] as const) {
    assert.throws(
      () => linkSettings(bytes(config)),
      (error) => {
        assert.ok(error instanceof CniFailure);
        assert.deepEqual([error.status.code, error.detail.code], [9, 7]);
        assert.match(error.message, text);
        return true;
      },
    );
  }
});

test("linkSettings: of any bytes and any configuration only CniFailure escapes, and its message is short", () => {
  const value = fc.oneof(fc.jsonValue(), fc.string());
  const config = fc.record(
    { name: value, mtu: value, runtimeConfig: fc.oneof(value, fc.record({ mac: value, ips: value })) },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fc.oneof(fc.uint8Array(), config.map(bytes), value.map(bytes)), (data) => {
      for (const read of [linkSettings, requestedMac]) {
        try {
          read(data);
        } catch (error) {
          assert.ok(error instanceof CniFailure && error.message.length < 600, String(error));
        }
      }
    }),
  );
});

test("requestedMac: CHECK of a pod is not refused for addresses that its runtime asked for", () => {
  assert.equal(
    requestedMac(bytes({ runtimeConfig: { ips: ["10.0.0.7"], mac: "02:00:00:00:00:01" } }))?.toBytes()[5],
    1,
  );
  assert.equal(requestedMac(bytes({ runtimeConfig: 5 })), undefined);
});
