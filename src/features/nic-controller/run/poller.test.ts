import assert from "node:assert/strict";
import { test } from "node:test";
import { type AbortOptions, Dirty } from "#base/async";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import type { NicClaim } from "#kube/nic";
import { NicControllerError } from "../errors.ts";
import { FakeVpc } from "../testing/fake-vpc.ts";
import { GuardedProvider } from "./guarded-provider.ts";
import { ClaimLedger } from "./ledger.ts";
import { PortPoller } from "./poller.ts";

const uidOf = (at: number): string => `6f0e1c1a-0000-4000-8000-${at.toString(16).padStart(12, "0")}`;

function claimOf(at: number, provider: string): NicClaim {
  const uid = uidOf(at);
  return {
    metadata: { name: uid, namespace: "default", uid: `claim-${at}`, resourceVersion: "1", generation: 1 },
    spec: { podName: "p", podUID: uid, vpc: "vpc-1", provider, nics: [{ name: "eth0" }] },
  };
}

test("PortPoller: a provider that is not known any more, and one that does not answer, hold up no other", async () => {
  const clock = new FakeClock();
  const vpc = new FakeVpc(clock);
  const silent = new FakeVpc(clock);
  silent.pollPorts = (_ids: readonly string[], { signal }: AbortOptions = {}) =>
    new Promise((_resolve, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));
  const ledger = new ClaimLedger({ claim: () => undefined });
  for (const [at, name] of ["gone", "silent", "well"].entries()) {
    ledger.add(claimOf(at, name), "default").update({ pollAt: 0, pollEveryMs: 250 });
  }
  const asked: Record<string, number> = {};
  const provider = (name = "") => {
    asked[name] = (asked[name] ?? 0) + 1;
    if (name === "gone") throw new NicControllerError("unknown-provider", "there is no provider gone");
    return name === "silent" ? silent : vpc;
  };
  const stop = new AbortController();
  const deps = { provider, clock, log: nullLogger, random: () => 0.5 };
  const poller = new PortPoller(deps, { enqueue: () => undefined, ledger, polls: new Dirty(clock) });
  const running = poller.run({ signal: stop.signal });
  await clock.advance(10_000);
  // At 0, then after pauses that grow from 375 ms to 2 s.
  assert.ok((vpc.calls["poll"] ?? 0) >= 6 && (vpc.calls["poll"] ?? 0) <= 9, `${vpc.calls["poll"]} looks`);
  assert.deepEqual([asked["gone"], asked["silent"]], [11, 1]);
  stop.abort();
  await running;
});

test("PortPoller: a port that somebody has deleted does not make looks wait for bindings of other pods", async () => {
  const clock = new FakeClock();
  const vpc = new FakeVpc(clock);
  const guarded = new GuardedProvider({ provider: vpc, clock, isLeading: () => true });
  const ledger = new ClaimLedger({ claim: () => undefined });
  const gone = { name: "eth0", state: "Failed", reason: "PortLost", portID: "gone", mac: "fa:16:3e:00:00:01" } as const;
  const claims = [claimOf(0, "neutron"), claimOf(1, "neutron")];
  const lost = ledger.add({ ...(claims[0] as NicClaim), status: { nics: [gone] } }, "default");
  const well = ledger.add(claims[1] as NicClaim, "default");
  const bindings = Promise.allSettled(
    Array.from({ length: 400 }, () => guarded.bindPort("x", { host: "h", deviceId: "", deviceOwner: "" }, {})),
  );
  for (const entry of [lost, well]) entry.update({ pollAt: 0, pollEveryMs: 2000 });
  const stop = new AbortController();
  const deps = { provider: () => guarded, clock, log: nullLogger, random: () => 0.5 };
  const poller = new PortPoller(deps, { enqueue: () => undefined, ledger, polls: new Dirty(clock) });
  const running = poller.run({ signal: stop.signal });
  await clock.advance(9_000);
  assert.ok((vpc.calls["bind"] ?? 0) < 400, "bindings still wait for their turn");
  // At 0, and each 2 s.
  assert.deepEqual([vpc.calls["poll"], vpc.calls["get"]], [5, 5]);
  stop.abort();
  await Promise.all([running, clock.advance(30_000), bindings]);
});
