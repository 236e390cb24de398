import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { IpAddress } from "#base/ip";
import type { Snapshot } from "#base/uplink-model";
import { snapshotOf, uplink } from "../testing/proxy-fixtures.ts";
import { classify } from "./classify.ts";
import { pairUp } from "./happy-eyeballs.ts";
import { EligibleCandidates, eligibleCandidates, orderCandidates } from "./order.ts";
import type { PenaltyState } from "./penalties.ts";
import { Rotation } from "./rotation.ts";

const FAILED = { lastFailed: 2, lastSucceeded: 1, lastError: "x", lastWarning: "" };

test("orderCandidates: by cost, the penalised ones last and by cost among themselves, those on probation before their equals", () => {
  const names = ["a0", "b0", "c1", "d1", "e2"];
  const uplinks = names.map((name) =>
    uplink(name, { cost: Number(name[1]), ...(name === "b0" ? { status: FAILED } : {}) }),
  );
  const standings: Record<string, PenaltyState> = { c1: "penalised", d1: "probation" };
  const tiers = orderCandidates(eligibleCandidates(snapshotOf(uplinks), [4]), {
    penaltyState: (name) => standings[name] ?? "good",
    rotate: (candidates) => [...candidates].reverse(),
    except: new Set(["e2"]),
  });
  const shown = tiers.map(({ candidates, isProbation }) => [
    candidates.map(({ uplink: { name } }) => name).join(),
    isProbation,
  ]);
  assert.deepEqual(shown, [
    ["a0", false],
    ["d1", true],
    ["b0", false],
    ["c1", false],
  ]);
});

test("EligibleCandidates: each snapshot and each choice of families has its own", () => {
  const eligible = new EligibleCandidates();
  const shown = (snapshot: Snapshot): string[] =>
    ([[4], [6], [6, 4], [4]] as const).map((families) =>
      eligible
        .of(snapshot, families)
        .map(({ uplink: { name }, sources }) => `${name} ${sources.join("+")}`)
        .join(),
    );
  const one = snapshotOf([
    uplink("a", { sources: ["192.0.2.1", "2001:db8::1"] }),
    uplink("b", { sources: ["192.0.2.2"] }),
  ]);
  const other = snapshotOf([uplink("a", { sources: ["2001:db8::3"] })]);
  for (const _round of [1, 2]) {
    assert.deepEqual(shown(one), [
      "a 192.0.2.1,b 192.0.2.2",
      "a 2001:db8::1",
      "a 192.0.2.1+2001:db8::1,b 192.0.2.2",
      "a 192.0.2.1,b 192.0.2.2",
    ]);
    assert.deepEqual(shown(other), ["", "a 2001:db8::3", "a 2001:db8::3", ""]);
  }
});

test("Rotation: tunnels are shared by weight, and equal turns go to the uplink with fewer of them", () => {
  const rotation = new Rotation();
  const uplinks = [
    { name: "a", weight: 3 },
    { name: "b", weight: 1 },
  ];
  const counts = { a: 0, b: 0 };
  for (let at = 0; at < 100; at += 1) {
    const chosen = rotation.order("d", uplinks)[0]?.name as "a" | "b";
    rotation.take("d", uplinks, chosen);
    counts[chosen] += 1;
  }
  assert.deepEqual(counts, { a: 75, b: 25 });
  const equal = [
    { name: "a", weight: 1 },
    { name: "b", weight: 1 },
  ];
  rotation.started("a");
  assert.equal(rotation.order("another", equal)[0]?.name, "b");
  rotation.ended("a");
  assert.equal(rotation.active("a"), 0);
});

test("Rotation: a turn that is given back was never taken (property)", () => {
  const uplinks = ["a", "b", "c"].map((name) => ({ name, weight: 1 }));
  fc.assert(
    fc.property(
      fc.array(fc.constantFrom("a", "b", "c"), { maxLength: 20 }),
      fc.constantFrom("a", "b", "c"),
      (taken, one) => {
        const rotation = new Rotation();
        for (const name of taken) rotation.take("d", uplinks, name);
        const before = rotation.order("d", uplinks);
        rotation.take("d", uplinks, one);
        rotation.giveBack("d", uplinks, one);
        assert.deepEqual(rotation.order("d", uplinks), before);
      },
    ),
  );
});

test("Rotation: turns that an uplink has missed are not made up for", () => {
  const rotation = new Rotation();
  const uplinks = ["a", "b"].map((name) => ({ name, weight: 1 }));
  for (let at = 0; at < 100; at += 1) {
    const first = rotation.order("d", uplinks)[0]?.name ?? "";
    rotation.take("d", uplinks, first);
    if (first === "a") rotation.move("d", uplinks, "a", "b");
  }
  const counts = { a: 0, b: 0 };
  for (let at = 0; at < 10; at += 1) {
    const chosen = rotation.order("d", uplinks)[0]?.name as "a" | "b";
    rotation.take("d", uplinks, chosen);
    counts[chosen] += 1;
  }
  assert.ok(counts.a <= 7, `${counts.a}`);
});

test("pairUp: families in turn, IPv6 first, sources of the same family, every destination before a second source", () => {
  const parse = (...texts: string[]): IpAddress[] => texts.map((text) => IpAddress.parse(text));
  const show = (addresses: string[], sources: string[] | undefined): string[] =>
    pairUp(parse(...addresses), sources === undefined ? undefined : parse(...sources)).map(
      ({ address, source }) => `${source ?? "any"}>${address}`,
    );
  assert.deepEqual(show(["1.1.1.1", "1.1.1.2", "2001:db8::1"], ["9.9.9.1", "2001:db8::9", "9.9.9.2"]), [
    "2001:db8::9>2001:db8::1",
    "9.9.9.1>1.1.1.1",
    "9.9.9.1>1.1.1.2",
    "9.9.9.2>1.1.1.1",
    "9.9.9.2>1.1.1.2",
  ]);
  assert.deepEqual(show(["2001:db8::1"], ["9.9.9.1"]), []);
  assert.deepEqual(show(["1.1.1.1", "2001:db8::1"], undefined), ["any>2001:db8::1", "any>1.1.1.1"]);
  assert.equal(pairUp(Array(40).fill(IpAddress.parse("1.1.1.1")), undefined).length, 8);
});

test("classify: errno of Node and of our own calls, and a lost source is distinguished from used-up ports", () => {
  const source = IpAddress.parse("192.0.2.1");
  const of = (error: unknown, isThere = true): string => classify(error, source, () => isThere).failure;
  const node = (code: string): Error => Object.assign(new Error(code), { code, errno: -1 });
  assert.equal(of(node("ETIMEDOUT")), "timeout");
  assert.equal(of(new DOMException("late", "TimeoutError")), "timeout");
  assert.equal(of(node("ECONNREFUSED")), "refused");
  assert.equal(of(node("ECONNRESET")), "refused");
  assert.equal(of(node("ENETUNREACH")), "unreachable");
  assert.equal(of(node("EHOSTUNREACH")), "unreachable");
  assert.equal(of(node("EADDRINUSE")), "ports-exhausted");
  assert.equal(of(node("EADDRNOTAVAIL")), "ports-exhausted");
  assert.equal(of(node("EADDRNOTAVAIL"), false), "address-gone");
  assert.equal(of(Object.assign(new Error("x"), { errno: "EADDRNOTAVAIL", code: "busy" }), false), "address-gone");
  assert.equal(of(node("EMFILE")), "other");
  assert.equal(of("what"), "other");
});
