import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { createLogger } from "#base/log";
import { KernelError } from "#kernel/errors";
import { KubeError } from "#kube/client";
import type { EventInput } from "#kube/events";
import type { RefusedClient } from "../guard/index.ts";
import { type NodeRouter, RefusedFlows } from "./refused-flows.ts";

const NAT = { namespace: "internet", name: "nat" };
const MINUTES_MS = 60_000;
const ip = IpAddress.parse;

const to = (client: string, port = 443): RefusedClient => ({
  ...{ client: ip(client), protocol: "tcp", address: ip("203.0.113.9"), port },
});

/** Pods by their addresses are `default/pod-ADDRESS`, but for those that are `unknown`. */
function open({ unknown = [] as readonly string[] } = {}) {
  const events: EventInput[] = [];
  const lines: string[] = [];
  const asked: string[] = [];
  const clock = new FakeClock();
  const refused: RefusedClient[] = [];
  const state = { refused, isAway: false, reads: 0, health: "" };
  const router: NodeRouter = {
    ...{ uid: "r1", name: "nat-1", egress: NAT },
    refused: async () => {
      state.reads += 1;
      return state.refused;
    },
  };
  const routers = [router];
  const flows = new RefusedFlows({
    routers: () => routers,
    egress: ({ namespace, name }) => ({ apiVersion: "coil.cybozu.com/v2", kind: "Egress", namespace, name, uid: "e" }),
    clientOf: async (address) => {
      asked.push(String(address));
      if (state.isAway) throw new KubeError("unreachable", "no API server");
      if (unknown.includes(String(address))) return undefined;
      return { apiVersion: "v1", kind: "Pod", namespace: "default", name: `pod-${address}`, uid: String(address) };
    },
    events: { record: (event) => void events.push(event) },
    health: {
      ok: () => {
        state.health = "ok";
      },
      degraded: (error) => {
        state.health = String(error);
      },
    },
    log: createLogger({ name: "coild", write: (line) => lines.push(line) }),
    clock,
  });
  const passes = async (count: number): Promise<void> => {
    for (let at = 0; at < count; at += 1) await flows.pass({});
  };
  const about = (): string[] =>
    events.map(({ regarding: { kind, namespace, name } }) => `${kind} ${namespace}/${name}`);
  return { flows, passes, events, about, lines, asked, clock, state, router, routers };
}

test("RefusedFlows: a router that refuses flows is an event of the Egress and of each refused client, with the share and what helps, once in ten minutes", async () => {
  const bed = open();
  await bed.passes(10);
  assert.deepEqual([bed.state.reads, bed.events], [2, []], "a router at rest is read in one of five passes");
  bed.state.refused = [to("10.64.1.1"), to("10.64.1.2")];
  await bed.passes(5);
  assert.deepEqual(bed.about(), ["Pod default/pod-10.64.1.1", "Pod default/pod-10.64.1.2", "Egress internet/nat"]);
  for (const { reason, type } of bed.events) assert.deepEqual([reason, type], ["EgressPortsExhausted", "Warning"]);
  const [client, , egress] = bed.events.map(({ note }) => note);
  assert.match(
    client ?? "",
    /^Router nat-1 of Egress internet\/nat refuses new flows of this pod to tcp 203\.0\.113\.9:443: none of the 32256 .* none of the 504 .*\(spec\.replicas\).*sessionAffinity None, .*fouSourcePortAuto$/,
  );
  assert.match(
    egress ?? "",
    /^Router nat-1 refuses new flows to tcp 203\.0\.113\.9:443: .* A router has 64512 ports .*spec\.replicas.*\. Refused: default\/pod-10\.64\.1\.1 \(10\.64\.1\.1\), default\/pod-10\.64\.1\.2 \(10\.64\.1\.2\)$/,
  );
  assert.equal(bed.lines.length, 1);
  // While flows are refused each pass reads the router.
  const before = bed.state.reads;
  await bed.passes(20);
  assert.equal(bed.state.reads, before + 20);
  assert.equal(bed.events.length, 3, "what is known is not written again");
  await bed.clock.advance(10 * MINUTES_MS);
  await bed.passes(1);
  assert.equal(bed.events.length, 6, "it lasts");
  bed.state.refused = [to("10.64.1.1"), to("10.64.1.1", 80)];
  await bed.passes(1);
  assert.deepEqual(bed.about().slice(6), ["Pod default/pod-10.64.1.1", "Egress internet/nat"], "another destination");
});

test("RefusedFlows: of two thousand refused clients a pass looks up five, and the event of the Egress names three and counts the others", async () => {
  const bed = open();
  bed.state.refused = Array.from({ length: 2100 }, (_, at) => to(`10.65.${at >> 8}.${at & 255}`));
  await bed.passes(1);
  assert.equal(bed.asked.length, 5);
  const egress = bed.events.find(({ regarding }) => regarding.kind === "Egress");
  assert.match(egress?.note ?? "", /pod-10\.65\.0\.2 \(10\.65\.0\.2\) and 2097 more$/);
  await bed.passes(2);
  assert.equal(new Set(bed.asked).size, 15, "each pass the next ones");
  await bed.passes(420);
  // The limit of what is remembered.
  assert.equal(bed.asked.length, 2047);
  await bed.clock.advance(10 * MINUTES_MS);
  await bed.passes(1);
  assert.equal(bed.asked.length, 2052);
});

test("RefusedFlows: a client that is no pod of the Egress is named by its address alone; neither it nor an API server that is away, nor a router that cannot be read keeps others from being reported", async () => {
  const bed = open({ unknown: ["fd02::1"] });
  bed.state.refused = [to("fd02::1")];
  await bed.passes(1);
  assert.deepEqual(bed.about(), ["Egress internet/nat"]);
  assert.match(bed.events[0]?.note ?? "", /Refused: fd02::1$/);
  await bed.passes(3);
  assert.deepEqual(bed.asked, ["fd02::1"], "it is not looked up again");
  bed.state.isAway = true;
  bed.state.refused = [to("10.64.1.1", 80)];
  const broken = async (): Promise<never> => {
    throw new KernelError("not-permitted", "no such right");
  };
  bed.routers.unshift({ ...bed.router, uid: "r0", name: "nat-0", refused: broken });
  await assert.rejects(bed.flows.pass({}), /no such right/);
  assert.deepEqual(bed.about().slice(1), ["Egress internet/nat"]);
  assert.match(bed.events[1]?.note ?? "", /Refused: 10\.64\.1\.1$/);
  bed.routers.shift();
  await assert.rejects(bed.flows.pass({}), /no API server/);
  bed.state.isAway = false;
  await bed.flows.pass({});
  assert.deepEqual(bed.about().slice(2), ["Pod default/pod-10.64.1.1"], "once the API server is there");
});
