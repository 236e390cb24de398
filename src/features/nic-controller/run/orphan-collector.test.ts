import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { KubeError } from "#kube/client";
import { NicControllerError } from "../errors.ts";
import { portIdentity } from "../plan/identity.ts";
import { FakeVpc } from "../testing/fake-vpc.ts";
import { OrphanCollector } from "./orphan-collector.ts";

const UID = "6f0e1c1a-0000-4000-8000-000000000001";

test("OrphanCollector: a provider that is away, and one that cannot be opened, hold up no other", async () => {
  const clock = new FakeClock(1_000_000_000);
  const [away, well] = [new FakeVpc(clock), new FakeVpc(clock)];
  away.isAway = true;
  const identity = portIdentity(UID, { cluster: "c1", namespace: "default", pod: "p", nic: "eth0" });
  well.change(well.addUserPort(), { ...identity, createdAt: new Date(0).toISOString() });
  const nothing = async (): Promise<never> => {
    throw new KubeError("not-found", "there is none");
  };
  let orphans = 0;
  const collector = new OrphanCollector(
    {
      api: { get: nothing, create: nothing, patch: nothing, delete: nothing },
      cluster: {
        claim: () => undefined,
        claims: () => [],
        pod: () => undefined,
        namespace: () => undefined,
        node: () => undefined,
        policy: () => ({}),
      },
      observer: {
        event: () => undefined,
        created: () => undefined,
        duplicates: () => undefined,
        active: () => undefined,
        orphans: (count) => {
          orphans += count;
        },
      },
      log: nullLogger,
      clock,
    },
    { clusterId: "c1", minAgeMs: 900_000, isDryRun: false },
  );
  const providers = {
    names: () => ["away", "gone", "well"],
    get: (name: string) => {
      if (name === "gone") throw new NicControllerError("unknown-provider", "gone cannot be opened");
      return name === "away" ? away : well;
    },
  };
  for (const left of [1, 0]) {
    const passing = collector.passAll(providers, { signal: AbortSignal.timeout(60_000) });
    await clock.advance(1000);
    await passing;
    assert.equal(well.ports.size, left);
  }
  assert.equal(orphans, 1);
});
