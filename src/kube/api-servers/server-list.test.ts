import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_SERVERS, parseServers, serversOf, textOf } from "./server-list.ts";

const slice = (addresses: readonly string[], rest: object = {}): object => ({
  addressType: "IPv4",
  endpoints: [{ addresses, conditions: { ready: true } }],
  ports: [{ name: "https", port: 6443, protocol: "TCP" }],
  ...rest,
});
const textsOf = (object: unknown): readonly string[] => serversOf(object).map(textOf);

test("serversOf: each ready address with the port https, in order, once", () => {
  const endpoints = [
    { addresses: ["10.0.0.3"], conditions: { ready: true } },
    { addresses: ["10.0.0.1"] },
    { addresses: ["10.0.0.1"], conditions: {} },
    { addresses: ["10.0.0.2"], conditions: { ready: false } },
    { addresses: ["fd00::1"], conditions: { ready: true } },
  ];
  const ports = [
    { name: "metrics", port: 1 },
    { name: "https", port: 6443, protocol: "TCP" },
  ];
  assert.deepEqual(textsOf(slice([], { endpoints, ports })), ["10.0.0.1:6443", "10.0.0.3:6443", "[fd00::1]:6443"]);
});

test("serversOf: no address that is none of one machine, no port that is none, no more than the maximum", () => {
  const bad = ["0.0.0.0", "169.254.0.1", "224.0.0.1", "ff02::1", "fe80::1", "::", "10.0.0.256", "api.example", ""];
  assert.deepEqual(textsOf(slice([...bad, "10.0.0.9"])), ["10.0.0.9:6443"]);
  for (const port of [0, -1, 1.5, 65_536]) assert.deepEqual(textsOf(slice(["10.0.0.1"], { ports: [{ port }] })), []);
  assert.deepEqual(textsOf(slice(["10.0.0.1"], { ports: [{ name: "https", port: 53, protocol: "UDP" }] })), []);
  const many = Array.from({ length: 300 }, (_, at) => `10.0.${at >> 8}.${at & 255}`);
  assert.equal(serversOf(slice(many)).length, MAX_SERVERS);
});

test("serversOf, parseServers: fuzz: any object gives servers within the bounds, or none", () => {
  const values: readonly unknown[] = [undefined, null, 0, -1, "", "x", "10.0.0.1", true, [], {}, [null], [[]], 1e99];
  const pick = (seed: number): unknown => values[seed % values.length];
  for (let seed = 0; seed < 2000; seed += 1) {
    const [a, b, c] = [pick(seed), pick(seed * 7 + 3), pick(seed * 13 + 5)];
    const endpoints = seed % 3 === 0 ? a : [{ addresses: seed % 2 === 0 ? b : [b, c], conditions: a }];
    const ports = seed % 5 === 0 ? c : [{ name: b, port: c, protocol: a }];
    for (const found of [serversOf({ endpoints, ports }), serversOf(a), parseServers([a, b, c])])
      assert.ok(found.length <= MAX_SERVERS && found.every(({ port }) => port >= 1 && port <= 65_535));
  }
});

test("parseServers: reads what textOf writes, and leaves out other texts", () => {
  const texts = ["10.0.0.1:6443", "[fd00::1]:443"];
  const more = ["10.0.0.1", "10.0.0.1:", ":6443", "10.0.0.1:6443x", "fd00::1", 5, null, "a".repeat(100)];
  assert.deepEqual(parseServers([...more, ...texts]).map(textOf), texts);
});
