import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { nullLogger } from "#base/log";
import { FakeKernel } from "#kernel/fake";
import { ClientDriver } from "./client-driver.ts";

type Lacks = ConstructorParameters<typeof FakeKernel>[0];

/** A driver on a kernel that gets other modules with the third load. */
function open(t: TestContext, asked: "fou" | "auto", lacks: Lacks, later: Lacks = lacks) {
  const clock = new FakeClock();
  let [kernel, loads] = [new FakeKernel(lacks), 0];
  const chosen: string[] = [];
  const health = new Health({ log: nullLogger });
  const driver = new ClientDriver({
    kernel: {
      createAnonymousNetNs: () => kernel.createAnonymousNetNs(),
      openStack: (netns) => kernel.openStack(netns),
    },
    asked,
    loadModules: async () => {
      loads += 1;
      if (loads === 3) kernel = new FakeKernel(later);
    },
    health: health.part("tunnel-driver"),
    onChosen: (name) => chosen.push(name),
    log: nullLogger,
    clock,
  });
  const stop = new AbortController();
  let changes = 0;
  const onChange = (): void => {
    changes += 1;
  };
  const run = async (): Promise<void> => {
    const running = driver
      .run({ signal: stop.signal, onChange })
      .catch((error: unknown) => assert.equal(error, stop.signal.reason));
    t.after(() => {
      stop.abort();
      return running;
    });
    for (let tries = 0; tries < 3; tries += 1) await clock.advance(60_000);
  };
  /** Returns the drivers of pods of both families, of IPv4 and of IPv6. */
  const drivers = (): string[] =>
    ([[4, 6], [4], [6]] as const).map((families) => {
      const { driver: found, fault } = driver.of(families);
      return found?.name ?? fault ?? "";
    });
  const status = () => health.parts.map((part) => part.status).join();
  return { run, drivers, chosen, status, seen: () => ({ loads, changes }) };
}

test("ClientDriver: modules are loaded before each later try, so those that a system gets at last are used", async (t) => {
  const { run, drivers, chosen, status, seen } = open(t, "fou", { lacks: ["fou", "fou6"] }, {});
  for (const fault of drivers()) assert.match(fault, /this kernel has no fou/);
  await run();
  assert.deepEqual(drivers(), ["fou", "fou", "fou"]);
  assert.deepEqual(chosen, ["none", "fou"]);
  assert.deepEqual([seen(), status()], [{ loads: 3, changes: 1 }, "ok"]);
});

test("ClientDriver: without fou6 pods of IPv4 alone have FoU, as with 0.1.0; those with IPv6 have none, until there is fou6", async (t) => {
  const lacking = open(t, "fou", { lacks: ["fou6"] });
  const [both, ipv4, ipv6] = lacking.drivers();
  assert.equal(ipv4, "fou");
  for (const fault of [both, ipv6]) assert.match(fault ?? "", /^--tunnel-driver=fou: this kernel has no fou6: /);
  assert.deepEqual([lacking.chosen, lacking.status()], [["fou"], "degraded"]);
  await lacking.run();
  assert.deepEqual([lacking.seen().changes, lacking.chosen], [0, ["fou"]]);
  const later = open(t, "fou", { lacks: ["fou6"] }, {});
  await later.run();
  assert.deepEqual([later.drivers(), later.seen().changes, later.status()], [["fou", "fou", "fou"], 1, "ok"]);
});

test("ClientDriver: a driver that was chosen for pods of one family stays, whatever a later try meets", async (t) => {
  const { run, drivers, chosen, seen } = open(t, "fou", { lacks: ["fou6"] }, { lacks: ["fou", "fou6", "ipip"] });
  await run();
  assert.equal(drivers()[1], "fou");
  assert.deepEqual([chosen.at(-1), seen().changes], ["fou", 1], "the fault of the others is another one");
});

test("ClientDriver: with auto pods have the driver that routers of their families choose", async (t) => {
  assert.deepEqual(open(t, "auto", {}).drivers(), ["fou", "fou", "fou"]);
  assert.deepEqual(open(t, "auto", { lacks: ["fou6"] }).drivers(), ["vxlan", "fou", "vxlan"]);
  assert.deepEqual(open(t, "auto", { lacks: ["ipip"] }).drivers(), ["vxlan", "vxlan", "fou"]);
  assert.deepEqual(open(t, "auto", { lacks: ["fou", "fou6"] }).drivers(), ["vxlan", "vxlan", "vxlan"]);
});
