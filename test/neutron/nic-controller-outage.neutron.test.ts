// The shipped controller of NICs while a real Neutron is away or has no room: what is kept, what is told, and what happens afterwards.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { NeutronServer } from "#test/neutron-server";
import { NicBed } from "#test/nic-bed";
import { nicOf } from "#test/nic-cluster";

const isFull = process.env["ISTHMUS_SOAK"] === "full";
/** For how long Neutron is away, in milliseconds: longer than it takes the controller to pause between its tries. */
const AWAY_MS = isFull ? 60_000 : 20_000;
const PODS = isFull ? 100 : 16;
/** For the ports of all pods on a busy machine, in milliseconds. */
const DEADLINE_MS = 150_000;

let shared: NeutronServer;
before(async () => {
  shared = await NeutronServer.start();
});
after(() => shared?.[Symbol.asyncDispose]());

test("nic-controller: Neutron is away while pods are made: those that run are left alone, then each has one port, and a new leader asks for no single one (T-27, T-28)", async (t) => {
  const bed = await NicBed.open(t, { shared });
  const first = bed.run();
  const early = await bed.pod("early", { node: "node-1" });
  const { portID = "" } = nicOf(await bed.untilClaim(early, ({ status }) => status?.phase === "Plumbable"));
  bed.neutron.setStatus(portID, "ACTIVE");
  await bed.tell(early, "Plugged");
  await bed.untilClaim(early, ({ status }) => status?.phase === "Active");

  const waiting: string[] = [];
  for (let at = 0; at < PODS / 2; at += 1) waiting.push(await bed.pod(`p${at}`, { node: "node-1" }));
  await bed.neutron.stop();
  const stoppedAt = performance.now();
  for (let at = PODS / 2; at < PODS; at += 1) waiting.push(await bed.pod(`p${at}`, { node: "node-1" }));
  const last = await bed.untilClaim(
    waiting.at(-1) ?? "",
    ({ status }) => status?.nics?.[0]?.reason === "ProviderUnavailable",
  );
  assert.deepEqual([last.status?.phase, nicOf(last).state], ["Creating", "InProgress"]);
  await bed.until("Neutron has been away for long", async () => performance.now() - stoppedAt > AWAY_MS, 2 * AWAY_MS);
  assert.equal((await bed.claim(early))?.status?.phase, "Active");
  await bed.neutron.startAgain();
  await bed.until(
    "all pods have their ports",
    async () => (await bed.claims()).every(({ status }) => status?.phase === "Plumbable" || status?.phase === "Active"),
    DEADLINE_MS,
  );
  const ports = await bed.ports();
  assert.deepEqual(
    ports.map((port) => String(port["device_id"])).sort(),
    [early, ...waiting].sort(),
    "one port for each pod",
  );

  await bed.kill(first);
  bed.proxy.requests.length = 0;
  bed.run();
  // A pod that is new to it shows that it has begun.
  const late = await bed.pod("late", { node: "node-1" });
  await bed.untilClaim(late, ({ status }) => status?.phase === "Plumbable");
  const gets = bed.proxy.requests.filter(({ method }) => method === "GET").map(({ path }) => path);
  assert.deepEqual(
    gets.filter((path) => /^\/v2\.0\/ports\/./.test(path)),
    [],
  );
  const lists = gets.filter((path) => path.startsWith("/v2.0/ports?"));
  assert.ok(lists.length <= 20, `${lists.length} lists of ports for ${PODS} claims`);
  assert.equal(
    bed.proxy.requests.filter(({ method }) => method !== "GET").length,
    1,
    "it makes the new port, no other",
  );
});

test("nic-controller: above the project's quota pods wait, and have their ports when it is raised (T-18)", async (t) => {
  const bed = await NicBed.open(t, { shared });
  await bed.neutron.request("PUT", "quotas/fake_project_id", { quota: { port: 4 } });
  bed.run();
  const uids = await Promise.all(Array.from({ length: 6 }, (_, at) => bed.pod(`p${at}`)));
  await bed.until("four have ports, and two are told why not", async () => {
    const phases = (await bed.claims()).map(({ status }) => status?.phase);
    return (
      phases.filter((phase) => phase === "Created").length === 4 &&
      phases.filter((phase) => phase === "Failed").length === 2
    );
  });
  const reasons = (await bed.claims()).flatMap(({ status }) => status?.nics?.[0]?.reason ?? []);
  assert.deepEqual(reasons, ["ProviderQuota", "ProviderQuota"]);
  await bed.neutron.request("PUT", "quotas/fake_project_id", { quota: { port: 10 } });
  for (const uid of uids) await bed.untilClaim(uid, ({ status }) => status?.phase === "Created");
  assert.equal((await bed.ports()).length, 6);
});
