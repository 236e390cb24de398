import assert from "node:assert/strict";
import { test } from "node:test";
import { chooseRouter, type ServingRouter } from "./choose.ts";
import type { RouterVerdict } from "./witness.ts";

const router = (id: string, verdict: RouterVerdict, isReady = true): ServingRouter => ({ id, verdict, isReady });
const chosen = (routers: readonly ServingRouter[], client = "pod", current?: string): string | undefined =>
  chooseRouter(routers, { client, current })?.id;

test("chooseRouter: the Service chooses while no ready router is dead, and where none is left", () => {
  assert.equal(chosen([]), undefined);
  assert.equal(chosen([router("a", "alive"), router("b", "unproven")]), undefined);
  assert.equal(chosen([router("a", "alive"), router("b", "dead", false)]), undefined);
  assert.equal(chosen([router("a", "dead"), router("b", "dead")]), undefined);
  assert.equal(chosen([router("a", "dead"), router("b", "alive", false)]), undefined);
});

test("chooseRouter: while one is dead a client has one that lives; routers that answer go before those that are not judged", () => {
  assert.equal(chosen([router("a", "dead"), router("b", "alive")]), "b");
  assert.equal(chosen([router("a", "dead"), router("b", "unproven")]), "b");
  assert.equal(chosen([router("a", "dead"), router("b", "unproven"), router("c", "alive")]), "c");
});

test("chooseRouter: a client keeps the living router that has its flows, and leaves the dead one", () => {
  const routers = [router("a", "dead"), router("b", "alive"), router("c", "alive"), router("d", "unproven")];
  for (const current of ["b", "c", "d"]) assert.equal(chosen(routers, "pod", current), current);
  assert.notEqual(chosen(routers, "pod", "a"), "a");
});

test("chooseRouter: clients spread over the living routers, and a second death moves only those of the second one", () => {
  const clients = Array.from({ length: 300 }, (_, at) => `pod-${at}`);
  const before = [router("a", "dead"), router("b", "alive"), router("c", "alive"), router("d", "alive")];
  const after = before.map((one) => (one.id === "c" ? router("c", "dead") : one));
  const counts = new Map<string, number>();
  for (const client of clients) {
    const [old, now] = [chosen(before, client) ?? "", chosen(after, client)];
    counts.set(old, (counts.get(old) ?? 0) + 1);
    if (old === "c") assert.ok(now === "b" || now === "d");
    else assert.equal(now, old);
  }
  assert.deepEqual([...counts.keys()].sort(), ["b", "c", "d"]);
  for (const count of counts.values()) assert.ok(count > 60, `${count} of 300`);
});

test("chooseRouter: a router that returns serves nobody while another one lives, and everybody while none does", () => {
  assert.equal(chosen([router("a", "returning"), router("b", "alive")]), "b");
  assert.equal(chosen([router("a", "returning"), router("b", "unproven")], "pod", "a"), "b");
  assert.equal(chosen([router("a", "returning"), router("b", "dead")]), "a");
  assert.equal(chosen([router("a", "returning"), router("b", "returning")], "pod", "b"), "b");
  assert.equal(chosen([router("a", "alive"), router("b", "alive")], "pod", "b"), undefined);
});
