import assert from "node:assert/strict";
import { test } from "node:test";
import { Health } from "#base/health";
import { hostListener, snapshotOf, uplink } from "../testing/proxy-fixtures.ts";
import { HealthParts, type HealthPartsInput } from "./health-parts.ts";

const LISTENER = hostListener(5443);
const WORKS = uplink("lan", { sources: ["192.0.2.10"] });
const FAILED = uplink("lte", {
  sources: ["198.51.100.10"],
  status: { lastFailed: 2, lastSucceeded: 1, lastError: "link down", lastWarning: "" },
});

const ROWS: readonly {
  readonly why: string;
  readonly input: Partial<HealthPartsInput>;
  readonly unready: readonly string[];
}[] = [
  { why: "all is well", input: {}, unready: [] },
  { why: "one uplink works beside a failed one", input: { snapshot: snapshotOf([WORKS, FAILED]) }, unready: [] },
  { why: "the newest settings are wrong", input: { configError: "bad" }, unready: ["configuration"] },
  { why: "the host listener is not bound", input: { bound: new Set() }, unready: ["listeners"] },
  {
    why: "a listener for pods waits for its bridge",
    input: { settings: { listeners: [LISTENER, hostListener(5443, { name: "pods", role: "pod" })] } },
    unready: [],
  },
  { why: "the uplinks are not known", input: { snapshot: snapshotOf([WORKS], { ready: false }) }, unready: ["ways"] },
  { why: "all uplinks have failed", input: { snapshot: snapshotOf([FAILED]) }, unready: ["ways"] },
  {
    why: "all uplinks are too dear",
    input: { snapshot: snapshotOf([{ ...WORKS, cost: 9 }], { maxCost: 0 }) },
    unready: ["ways"],
  },
  {
    why: "no uplink has an address",
    input: { snapshot: snapshotOf([uplink("lan", { sources: [] })]) },
    unready: ["ways"],
  },
];

test("HealthParts: each state degrades its part and no other", () => {
  for (const { why, input, unready } of ROWS) {
    const health = new Health();
    const parts = new HealthParts(health);
    const snapshot = snapshotOf([WORKS]);
    parts.update({
      settings: { listeners: [LISTENER] },
      configError: undefined,
      snapshot,
      bound: new Set([LISTENER.name]),
      ...input,
    });
    const names = health.unready.map(({ name }) => name);
    assert.deepEqual(names, unready, why);
  }
});
