import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import type { WatchedSide } from "../local/local-side.ts";
import type { DialHandlers } from "../mux/link-handlers.ts";
import type { LinkMux } from "../mux/link-mux.ts";
import { Counts } from "../testing/bed.ts";
import { FakePulse } from "../testing/fake-pulse.ts";
import { Backend, Backends } from "./backends.ts";
import { type ForwardedDial, Forwarder } from "./forward.ts";

const DIAL_MS = 10_000;
const LOCAL: Partial<WatchedSide> = {
  ...{ bytesWritten: 0, detectsClose: true },
  finish: () => undefined,
  destroy: () => undefined,
};

/** An agent whose link takes dials and answers none; `connections` is what it has besides them. */
function silentAgent(agentID: string, connections = 0) {
  const dials: DialHandlers[] = [];
  const mux = {
    ...{ isClosed: false, halfClose: true, bytesSent: 0, queuedBytes: 0, connections },
    get pendingDials(): number {
      return dials.length;
    },
    dial: (request: { readonly random: number }, handlers: DialHandlers) => {
      dials.push(handlers);
      return { random: request.random, cancel: () => dials.splice(dials.indexOf(handlers), 1) };
    },
  };
  const pulse = new FakePulse();
  const identifiers = { ipv4: [], ipv6: [], host: [], cidr: [], defaultRoute: false };
  const backend = new Backend({ agentID, identifiers, mux: mux as unknown as LinkMux, pulse });
  return { backend, pulse, dials };
}

function forwarderTo(agents: readonly { readonly backend: Backend }[]) {
  const clock = new FakeClock();
  const backends = new Backends(["default"]);
  for (const { backend } of agents) backends.add(backend);
  const forwarder = new Forwarder(
    { backends, clock, metrics: new Counts().server() },
    { backendDialTimeoutMs: DIAL_MS, halfCloseTimeoutMs: 1000 },
  );
  let random = 0;
  const failures: string[] = [];
  const dial = (): ForwardedDial | undefined => {
    random += 1;
    const local = LOCAL as WatchedSide;
    return forwarder.dial(
      { protocol: "tcp", address: "10.0.0.1:80", random, local, localHalfClose: true },
      {
        onConnected: () => undefined,
        onDialFailed: ({ kind }) => failures.push(kind),
        onDisconnected: () => undefined,
      },
    );
  };
  return { clock, backends, failures, dial };
}

test("Forwarder: an agent that has sent no byte since a dial that timed out is probed, and no other", async () => {
  const agent = silentAgent("a");
  const { clock, failures, dial } = forwarderTo([agent]);
  dial();
  await clock.advance(DIAL_MS - 1);
  assert.equal(agent.pulse.probes, 0);
  await clock.advance(1);
  assert.deepEqual([failures, agent.pulse.probes], [["timeout"], 1]);
  agent.pulse.beat();
  dial();
  await clock.advance(DIAL_MS / 2);
  agent.pulse.beat();
  await clock.advance(DIAL_MS / 2);
  assert.deepEqual([failures, agent.pulse.probes], [["timeout", "timeout"], 1]);
});

test("Forwarder: an agent is probed too when its frontend has given a dial up after 5 s without a byte", async () => {
  const agent = silentAgent("a");
  const { clock, dial } = forwarderTo([agent]);
  const early = dial();
  await clock.advance(4999);
  early?.close();
  assert.equal(agent.pulse.probes, 0);
  const late = dial();
  await clock.advance(5000);
  late?.close();
  assert.equal(agent.pulse.probes, 1);
});

test("Forwarder: an agent that owes its answer to a dial that another one has answered is probed when the answer is late", async () => {
  const agents = [silentAgent("a"), silentAgent("b")];
  const { clock, failures, dial } = forwarderTo(agents);
  dial();
  const first = agents.find(({ dials }) => dials.length > 0);
  const second = agents.find((agent) => agent !== first);
  await clock.advance(2000);
  first?.dials.pop()?.onRefused("connection refused");
  assert.deepEqual([failures, second?.dials.length], [["refused"], 1]);
  await clock.advance(6999);
  assert.equal(second?.pulse.probes, 0);
  await clock.advance(1);
  assert.deepEqual([first?.pulse.probes, second?.pulse.probes, second?.dials.length], [0, 1, 0]);
});

test("Forwarder: an agent that answers nothing gets no dial after its first time-out, until a byte of it comes", async () => {
  const [busy, silent] = [silentAgent("busy", 10), silentAgent("silent")];
  const { clock, backends, dial } = forwarderTo([busy, silent]);
  while (silent.dials.length === 0) dial();
  // The busy one answers.
  await clock.advance(DIAL_MS / 2);
  busy.pulse.beat();
  await clock.advance(DIAL_MS / 2);
  assert.deepEqual([busy.pulse.probes, silent.pulse.probes], [0, 1]);
  const picks = (): Set<string | undefined> =>
    new Set(Array.from({ length: 100 }, () => backends.pick("10.0.0.1:80")?.agentID));
  assert.deepEqual(picks(), new Set(["busy"]));
  busy.backend.isDraining = true;
  assert.deepEqual(picks(), new Set(["busy"]), "one that drains answers");
  busy.backend.isDraining = false;
  silent.pulse.beat();
  assert.ok(picks().has("silent"));
});

test("Forwarder: the next stream of an agent is used while its oldest one answers nothing", async () => {
  const [old, next] = [silentAgent("a"), silentAgent("a")];
  const { clock, backends, dial } = forwarderTo([old, next]);
  dial();
  assert.deepEqual([old.dials.length, next.dials.length], [1, 0]);
  await clock.advance(DIAL_MS);
  assert.equal(backends.pick("10.0.0.1:80"), next.backend);
  old.pulse.beat();
  assert.equal(backends.pick("10.0.0.1:80"), old.backend);
});

test("Forwarder: an agent that comes again over a new connection is dialled over it, until its earlier one has shown that it lives", () => {
  const [old, next, last, other] = [silentAgent("a"), silentAgent("a"), silentAgent("a"), silentAgent("b")];
  const { backends, dial } = forwarderTo([old, next, last]);
  // A firewall has forgotten the flow of the old one, say, and only the agent has noticed.
  backends.probeEarlier(next.backend);
  dial();
  const dials = (): number[] => [old, next, last].map((one) => one.dials.length);
  assert.deepEqual([old.pulse.probes, next.pulse.probes, last.pulse.probes, dials()], [1, 0, 0, [0, 1, 0]]);
  old.pulse.beat();
  dial();
  assert.deepEqual(dials(), [1, 1, 0]);
  backends.probeEarlier(other.backend);
  backends.remove(last.backend);
  backends.probeEarlier(last.backend);
  assert.deepEqual(
    [old.pulse.probes, next.pulse.probes],
    [1, 0],
    "one that is gone, or of another agent, says nothing",
  );
});
