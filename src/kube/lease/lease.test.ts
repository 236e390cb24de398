import assert from "node:assert/strict";
import { test } from "node:test";
import { sleep } from "#base/async";
import { type Clock, FakeClock, systemClock } from "#base/clock";
import { type CallOptions, type KubeApi, KubeError, type Lease } from "#kube/client";
import { type LeaderElectionOptions, LeaderElector, type LeadershipEnd, runAsLeader } from "./index.ts";

type Fault = "none" | "down" | "lost-response" | "conflict" | "hang-get" | "hang-write";

/**
 * One Lease with optimistic concurrency, and faults for one candidate. A fault `hang-…` is for one request, which gets no answer and ends with
 * its own time limit or its signal, as a request over a connection whose server is gone.
 */
class FakeLeases {
  lease: Lease | undefined;
  writes = 0;
  readonly faults = new Map<string, Fault>();
  readonly #clock: Clock;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  api(who: string): Pick<KubeApi, "get" | "create" | "replace"> {
    const fault = (): Fault => this.faults.get(who) ?? "none";
    const down = (): void => {
      if (fault() === "down") throw new KubeError("unreachable", "down");
    };
    const hang = async (kind: Fault, { signal, timeoutMs = 30_000 }: CallOptions = {}): Promise<void> => {
      if (fault() !== kind) return;
      this.faults.set(who, "none");
      await sleep(timeoutMs, { signal, clock: this.#clock });
      throw new KubeError("timeout", "no answer");
    };
    const write = async (draft: unknown, options?: CallOptions): Promise<Lease> => {
      down();
      await hang("hang-write", options);
      if (fault() === "conflict") throw new KubeError("conflict", "conflict");
      const next = structuredClone(draft) as Lease;
      const version = next.metadata.resourceVersion;
      if (version === undefined ? this.lease !== undefined : version !== this.lease?.metadata.resourceVersion) {
        throw new KubeError(version === undefined ? "already-exists" : "conflict", "somebody was faster");
      }
      this.writes += 1;
      this.lease = { ...next, metadata: { ...next.metadata, uid: "u", resourceVersion: String(this.writes) } };
      if (fault() === "lost-response") throw new KubeError("unreachable", "the answer was lost");
      return structuredClone(this.lease);
    };
    const get = async (_type: unknown, _key: unknown, options?: CallOptions): Promise<Lease> => {
      down();
      await hang("hang-get", options);
      if (this.lease === undefined) throw new KubeError("not-found", "none");
      return structuredClone(this.lease);
    };
    return {
      get,
      create: (_type: unknown, draft: unknown, options?: CallOptions) => write(draft, options),
      replace: (_type: unknown, draft: unknown, options?: CallOptions) => write(draft, options),
    } as unknown as Pick<KubeApi, "get" | "create" | "replace">;
  }

  get holder(): string | undefined {
    return this.lease?.spec?.holderIdentity;
  }
}

class Candidate {
  readonly stop = new AbortController();
  leading = false;
  readonly ended: Promise<LeadershipEnd>;
  readonly errors: string[] = [];
  recoveries = 0;
  readonly leaders: string[] = [];

  constructor(leases: FakeLeases, identity: string, clock: FakeClock, options: Partial<LeaderElectionOptions> = {}) {
    this.ended = runAsLeader(
      leases.api(identity),
      {
        namespace: "kube-system",
        name: "test",
        identity,
        clock,
        random: () => 0,
        onError: (error) => this.errors.push(error.code),
        onNewLeader: (leader) => this.leaders.push(leader),
        onRecovered: () => {
          this.recoveries += 1;
        },
        ...options,
      },
      {
        signal: this.stop.signal,
        lead: (signal) => {
          this.leading = true;
          return new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
        },
        onStopped: () => {
          this.leading = false;
        },
      },
    );
  }
}

async function end(...candidates: Candidate[]): Promise<void> {
  for (const candidate of candidates) candidate.stop.abort();
  await Promise.all(candidates.map((candidate) => candidate.ended));
}

test("election: of three candidates one leads, and keeps leading as it renews", async () => {
  const leases = new FakeLeases();
  const clock = new FakeClock();
  const all = ["a", "b", "c"].map((name) => new Candidate(leases, name, clock));
  for (let second = 0; second < 120; second += 1) {
    await clock.advance(1000);
    assert.equal(all.filter((one) => one.leading).length, 1);
  }
  assert.equal(leases.lease?.spec?.leaseTransitions, 0);
  assert.equal(leases.lease?.spec?.leaseDurationSeconds, 15);
  assert.match(leases.lease?.spec?.renewTime ?? "", /^2026-01-01T00:0\d:\d\d\.\d{6}Z$/);
  assert.deepEqual(new Set(all.flatMap((one) => one.leaders)), new Set([leases.holder]));
  await end(...all);
});

test("election: the end of failures is told, once, to a leader and to a candidate that waits", async () => {
  const leases = new FakeLeases();
  const clock = new FakeClock();
  const a = new Candidate(leases, "a", clock);
  await clock.advance(0);
  const b = new Candidate(leases, "b", clock);
  await clock.advance(3000);
  assert.deepEqual([a.recoveries, b.recoveries], [0, 0]);
  for (const name of ["a", "b"]) leases.faults.set(name, "down");
  await clock.advance(5000);
  for (const { errors } of [a, b]) assert.ok(errors.length > 0);
  for (const name of ["a", "b"]) leases.faults.set(name, "none");
  await clock.advance(20_000);
  assert.deepEqual([a.leading, a.recoveries, b.recoveries], [true, 1, 1]);
  assert.deepEqual([a.leaders, b.leaders], [["a"], ["a"]]);
  await end(a, b);
});

test("election: a leader that stops gives the lease up and another leads at its next try", async () => {
  const leases = new FakeLeases();
  const clock = new FakeClock();
  const a = new Candidate(leases, "a", clock);
  await clock.advance(0);
  const b = new Candidate(leases, "b", clock);
  await clock.advance(5000);
  assert.deepEqual([a.leading, b.leading], [true, false]);
  a.stop.abort();
  assert.equal(await a.ended, "stopped");
  assert.equal(leases.holder, "");
  await clock.advance(2000);
  assert.equal(b.leading, true);
  assert.equal(leases.lease?.spec?.leaseTransitions, 1);
  await end(b);
});

test("election: a leader that stops gives the lease up, also when it does not know that its last renewal was written", async () => {
  const leases = new FakeLeases();
  const clock = new FakeClock();
  const a = new Candidate(leases, "a", clock);
  await clock.advance(0);
  leases.faults.set("a", "lost-response");
  await clock.advance(2000);
  assert.equal(leases.writes, 2);
  leases.faults.set("a", "none");
  a.stop.abort();
  assert.equal(await a.ended, "stopped");
  assert.equal(leases.holder, "");
});

test("election: a lease that another candidate has taken meanwhile is not given up", async () => {
  const leases = new FakeLeases();
  const clock = new FakeClock();
  const a = new Candidate(leases, "a", clock);
  await clock.advance(0);
  const lease = leases.lease;
  assert.ok(lease);
  await leases.api("x").replace({} as never, { ...lease, spec: { ...lease.spec, holderIdentity: "thief" } } as never);
  a.stop.abort();
  assert.equal(await a.ended, "stopped");
  assert.equal(leases.holder, "thief");
});

test("election: a leader that cannot reach the API stops before another can lead", async () => {
  const leases = new FakeLeases();
  const clock = new FakeClock();
  const a = new Candidate(leases, "a", clock);
  await clock.advance(0);
  const b = new Candidate(leases, "b", clock);
  await clock.advance(5000);
  leases.faults.set("a", "down");
  let stoppedAt = 0;
  let takenAt = 0;
  for (let ms = 0; ms < 30_000 && takenAt === 0; ms += 100) {
    await clock.advance(100);
    assert.ok(!(a.leading && b.leading), "two leaders");
    if (stoppedAt === 0 && !a.leading) stoppedAt = ms;
    if (b.leading) takenAt = ms;
  }
  assert.equal(await a.ended, "lost");
  assert.ok(stoppedAt > 0 && stoppedAt < takenAt, `stopped ${stoppedAt}, taken ${takenAt}`);
  assert.ok(takenAt <= 19_000, `taken after ${takenAt} ms`);
  assert.ok(a.errors.includes("unreachable"));
  await end(b);
});

test("election: one request without an answer does not cost the lease", async () => {
  for (const fault of ["hang-get", "hang-write"] as const) {
    const clock = new FakeClock();
    const leases = new FakeLeases(clock);
    const a = new Candidate(leases, "a", clock);
    await clock.advance(0);
    const b = new Candidate(leases, "b", clock);
    await clock.advance(5000);
    leases.faults.set("a", fault);
    for (let second = 0; second < 40; second += 1) {
      await clock.advance(1000);
      assert.deepEqual([a.leading, b.leading], [true, false], `${fault}, ${second} s`);
    }
    assert.deepEqual(a.errors, ["timeout"]);
    assert.equal(leases.lease?.spec?.leaseTransitions, 0);
    await end(a, b);
  }
});

test("election: wall clocks that differ by hours do not matter", async () => {
  const leases = new FakeLeases();
  const a = new FakeClock(Date.UTC(2020, 0, 1));
  const b = new FakeClock(Date.UTC(2030, 0, 1));
  const first = new Candidate(leases, "a", a);
  await a.advance(0);
  const second = new Candidate(leases, "b", b);
  for (let step = 0; step < 60; step += 1) {
    await a.advance(1000);
    await b.advance(1000);
    if (step % 10 === 0) b.jumpWall(3_600_000);
    assert.deepEqual([first.leading, second.leading], [true, false]);
  }
  await end(first, second);
});

test("election: a candidate that has just come waits a whole lease, however old the record says it is", async () => {
  const leases = new FakeLeases();
  const clock = new FakeClock();
  await leases.api("x").create(
    {} as never,
    {
      metadata: { name: "test", namespace: "kube-system" },
      spec: {
        holderIdentity: "dead",
        leaseDurationSeconds: 15,
        renewTime: "2001-01-01T00:00:00.000000Z",
        leaseTransitions: 4,
      },
    } as never,
  );
  const a = new Candidate(leases, "a", clock);
  await clock.advance(14_000);
  assert.equal(a.leading, false);
  await clock.advance(4_000);
  assert.equal(a.leading, true);
  assert.equal(leases.lease?.spec?.leaseTransitions, 5);
  assert.deepEqual(a.leaders, ["dead", "a"]);
  await end(a);
});

test("election: an answer lost after the write still counts, and conflicts while renewing are tried again", async () => {
  const leases = new FakeLeases();
  const clock = new FakeClock();
  leases.faults.set("a", "lost-response");
  const a = new Candidate(leases, "a", clock);
  await clock.advance(0);
  assert.deepEqual([leases.holder, a.leading], ["a", false]);
  leases.faults.set("a", "none");
  await clock.advance(2000);
  assert.equal(a.leading, true);
  leases.faults.set("a", "conflict");
  await clock.advance(6000);
  leases.faults.set("a", "none");
  await clock.advance(20_000);
  assert.equal(a.leading, true);
  await end(a);
});

test("election: a lease taken by another candidate is lost at the next renewal", async () => {
  const leases = new FakeLeases();
  const clock = new FakeClock();
  const a = new Candidate(leases, "a", clock);
  await clock.advance(0);
  const lease = leases.lease;
  assert.ok(lease);
  await leases.api("x").replace({} as never, { ...lease, spec: { ...lease.spec, holderIdentity: "thief" } } as never);
  await clock.advance(2000);
  assert.equal(await a.ended, "lost");
  assert.equal(leases.holder, "thief");
});

test("runAsLeader: work that ends gives the lease up, work that fails too and rejects", async () => {
  const leases = new FakeLeases();
  const options = { namespace: "n", name: "l", identity: "a", clock: new FakeClock() };
  const { signal } = new AbortController();
  assert.equal(await runAsLeader(leases.api("a"), options, { signal, lead: async () => undefined }), "work-done");
  assert.equal(leases.holder, "");
  const bug = new TypeError("bug");
  await assert.rejects(runAsLeader(leases.api("a"), options, { signal, lead: () => Promise.reject(bug) }), bug);
  assert.equal(leases.holder, "");
});

test("elector: times that cannot work are refused", () => {
  const options = { namespace: "n", name: "l", identity: "a" };
  const api = new FakeLeases().api("a");
  assert.throws(() => new LeaderElector(api, { ...options, renewDeadlineMs: 15_000, clock: systemClock }), RangeError);
  assert.throws(() => new LeaderElector(api, { ...options, retryPeriodMs: 9_000, clock: systemClock }), RangeError);
});
