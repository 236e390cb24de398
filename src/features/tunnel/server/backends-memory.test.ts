// own process: it measures the heap.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { parseIdentifiers } from "#wire/konnectivity";
import type { LinkMux } from "../mux/link-mux.ts";
import { FakePulse } from "../testing/fake-pulse.ts";
import { Backend, Backends } from "./backends.ts";
import type { Strategy } from "./strategies.ts";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;
const [AGENTS, HOSTS] = [20, 5000];

function heapBytes(): number {
  collect();
  return process.memoryUsage().heapUsed;
}

/** Agents that name as many hosts as metadata takes, each of its own. */
const all = Array.from({ length: AGENTS }, (_, agent) => {
  const text = Array.from({ length: HOSTS }, (_, host) => `host=${agent}-${host}`).join("&");
  const identifiers = parseIdentifiers(text, { unknownKeys: "ignore" });
  return new Backend({
    agentID: `agent-${agent}`,
    identifiers,
    mux: { isClosed: false } as LinkMux,
    pulse: new FakePulse(),
  });
});

for (const [strategy, most] of [
  ["default", 5],
  ["destHost", 200],
] as const) {
  test(`Backends: a host that an agent names takes at most ${most} bytes with ${strategy}`, () => {
    const strategies: readonly Strategy[] = [strategy];
    const before = heapBytes();
    const backends = new Backends(strategies);
    for (const backend of all) backends.add(backend);
    const each = (heapBytes() - before) / (AGENTS * HOSTS);
    assert.ok(each <= most, `${each} bytes`);
    for (const backend of all) backends.remove(backend);
    assert.equal(backends.isEmpty, true);
    assert.ok((heapBytes() - before) / (AGENTS * HOSTS) < 10);
  });
}
