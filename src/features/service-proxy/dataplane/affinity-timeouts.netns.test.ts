import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import type { IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { NftTransaction } from "#kernel/nft";
import { ElementBatch } from "#kernel/nft-elements";
import { addressBytes, MAX_TIMEOUTS, planService, WantedTable } from "../plan/index.ts";
import { AFFINITY_CHAINS, affinitySetSpecs, compileRule, type Rule } from "../rules/index.ts";
import { Bed } from "../testing/bed.ts";
import { addressesOf, endpoint, NODE, ruleOptions, SERVICE_PORT, servicePort } from "../testing/fixture.ts";
import { DataPlane, GenerationTracker, type WantedState } from "./index.ts";

/** The rules of a chain with one timeout: two for packets that leave it, and one for each kind of front end and protocol. */
const RULES_OF_ONE = [8, 8];
const ROUNDS = { 4: 200, 6: 20 } as const;

let bed: Bed;
before(async () => {
  bed = await Bed.open(`isp-times-${process.pid}`);
});
after(() => bed[Symbol.asyncDispose]());

function open(family: IpFamily): DataPlane {
  const { nft, elements } = bed;
  return new DataPlane(
    { nft, elements, generations: new GenerationTracker(elements), clock: systemClock, log: nullLogger },
    { ...ruleOptions(family), tableName: "kube-proxy" },
  );
}

/** A Service with affinity of each of these timeouts, 0: none; the first has the bed's cluster IP and port. */
function wanted(services: WantedTable, family: IpFamily, timeouts: readonly number[]): WantedState {
  const { node } = addressesOf(family);
  for (const [at, affinitySeconds] of timeouts.entries()) {
    const port = servicePort(family, { name: `s${at}`, port: SERVICE_PORT + at, nodePort: 0, affinitySeconds });
    services.set(`ns/s${at}`, planService([{ port, endpoints: [endpoint(family, "remote")] }], NODE, [node]));
  }
  return { services, nodePortIPs: new Set([addressBytes(node)]), serviceCIDRs: [] };
}

const tableOf = (family: IpFamily) => ({ family: family === 4 ? "ip" : "ip6", name: "kube-proxy" }) as const;

/** The number of rules that record affinity, in each of their chains, and the sets of timeouts. */
function content(family: IpFamily): { readonly rules: readonly number[]; readonly sets: readonly string[] } {
  const handles = bed.elements.ruleHandles(tableOf(family));
  const sets = bed.elements.names(tableOf(family))?.sets ?? [];
  return {
    rules: AFFINITY_CHAINS.map((name) => handles.filter((line) => line.startsWith(`${name} `)).length),
    sets: sets.filter((name) => /affinity-\d+$/.test(name)).sort(),
  };
}

/** Seconds of the entries that clients get by the first Service, rounded. */
async function remembered(family: IpFamily): Promise<readonly number[]> {
  const { kind } = await bed.connect("external", addressesOf(family).clusterIP, SERVICE_PORT, { droppedMs: 10_000 });
  assert.equal(kind, "delivered");
  const entries = bed.elements.list(tableOf(family), "affinity");
  return entries.map(({ expiresInMs = 0 }) => Math.ceil(expiresInMs / 1000));
}

for (const family of [4, 6] as const) {
  test(`affinity: a Service that goes through many timeouts leaves the rules and sets of the last one, IPv${family}`, async () => {
    const plane = open(family);
    await plane.remove();
    const services = new WantedTable();
    for (let seconds = 1; seconds <= ROUNDS[family]; seconds += 1)
      await plane.sync(wanted(services, family, [seconds]));
    const last = ROUNDS[family];
    const one = { rules: RULES_OF_ONE, sets: [`affinity-${last}`, `np-affinity-${last}`] };
    assert.deepEqual(content(family), one);
    assert.deepEqual(await remembered(family), [last]);
    const restarted = await open(family).sync(wanted(services, family, [last]));
    assert.deepEqual([restarted.changes, restarted.transactions], [0, 0]);
    await plane.sync(wanted(services, family, [0]));
    assert.deepEqual(content(family), { rules: [0, 0], sets: [] });
  });

  test(`affinity: many Services with timeouts of their own make no more than ${MAX_TIMEOUTS} pairs of sets, IPv${family}`, async () => {
    const plane = open(family);
    await plane.remove();
    const services = new WantedTable();
    const many = Array.from({ length: 150 }, (_, at) => 101 + at);
    await plane.sync(wanted(services, family, many));
    const { rules, sets } = content(family);
    assert.ok(sets.length <= 2 * MAX_TIMEOUTS, `${sets.length} sets`);
    assert.ok(Math.max(...rules) <= 6 * MAX_TIMEOUTS + 2, `${rules.join()} rules`);
    assert.deepEqual(await remembered(family), [120]);
    const restarted = await open(family).sync(wanted(services, family, many));
    assert.deepEqual([restarted.changes, restarted.transactions], [0, 0]);
    for (let at = 10; at < many.length; at += 1) services.set(`ns/s${at}`, undefined);
    const { drift } = await plane.sync(wanted(services, family, many.slice(0, 10)));
    assert.equal(drift, 0);
    assert.equal(content(family).sets.length, 20, "exact again");
    assert.equal((await plane.sync(wanted(services, family, many.slice(0, 10)), { full: true })).changes, 0);
  });

  test(`affinity: unused timeouts of an earlier release go with the first sync, and clients keep their endpoints, IPv${family}`, async () => {
    await open(family).remove();
    const services = new WantedTable();
    await open(family).sync(wanted(services, family, [60]));
    assert.equal((await remembered(family)).length, 1);
    const tx = new NftTransaction(tableOf(family));
    for (const seconds of [7, 77]) for (const [name, spec] of affinitySetSpecs(family, seconds)) tx.set(name, spec);
    bed.nft.run(tx);
    // As that release wrote them: one chain, in which each rule matches the first packet itself, and none leaves the chain.
    const [chain = "", ...later] = AFFINITY_CHAINS;
    bed.nft.run(
      later.reduce((old, name) => old.flushChain(name).deleteChain(name), new NftTransaction(tableOf(family))),
    );
    const batch = new ElementBatch(tableOf(family)).emptyChain(chain);
    for (const seconds of [7, 60, 77]) {
      const rule: Rule = {
        matches: [{ kind: "protocol", protocols: ["TCP"] }],
        actions: [{ kind: "remember", seconds, isNodePort: false }],
      };
      batch.rule(chain, compileRule(rule, family));
    }
    await bed.elements.commit(batch);
    const plane = open(family);
    await plane.sync(wanted(services, family, [60]));
    assert.deepEqual(content(family), { rules: RULES_OF_ONE, sets: ["affinity-60", "np-affinity-60"] });
    assert.equal(bed.elements.list(tableOf(family), "affinity").length, 1);
    const second = await open(family).sync(wanted(services, family, [60]));
    assert.deepEqual([second.changes, second.transactions], [0, 0]);
  });
}
