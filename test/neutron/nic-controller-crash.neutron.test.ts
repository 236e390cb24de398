// The shipped controller of NICs is killed, loses its Lease or its answers, while it asks a real Neutron: no port too many, and none too few.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Deferred } from "#base/async";
import type { ProxyVerdict, SeenRequest } from "#test/neutron-proxy";
import { NeutronServer } from "#test/neutron-server";
import { NicBed } from "#test/nic-bed";
import { nicOf } from "#test/nic-cluster";

const isFull = process.env["ISTHMUS_SOAK"] === "full";
const ROUNDS = isFull ? 20 : 3;
/** After this time another process can have a Lease that was not renewed, in milliseconds. */
const LEASE_MS = 15_000;

const makesPorts = ({ method, path }: SeenRequest): boolean => method === "POST" && path === "/v2.0/ports";
const deletesPort = ({ method, path }: SeenRequest): boolean => method === "DELETE" && path.startsWith("/v2.0/ports/");

let shared: NeutronServer;
before(async () => {
  shared = await NeutronServer.start();
});
after(() => shared?.[Symbol.asyncDispose]());

/** The ports of pods, as many for each as there are. */
async function portsByPod(bed: NicBed): Promise<Readonly<Record<string, number>>> {
  const counts: Record<string, number> = {};
  for (const port of await bed.ports()) {
    const uid = String(port["device_id"]);
    counts[uid] = (counts[uid] ?? 0) + 1;
  }
  return counts;
}

for (const point of ["before", "after"] as const) {
  test(`nic-controller: killed ${point} Neutron makes ports, again and again: each NIC has one port (T-21)`, async (t) => {
    const bed = await NicBed.open(t, { shared });
    const uids: string[] = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const one = bed.run();
      const killed = bed.killAt(one, makesPorts, point);
      uids.push(await bed.pod(`p${round}`, { nics: [{}, { name: "eth1" }] }));
      await killed;
    }
    bed.run();
    for (const uid of uids) await bed.untilClaim(uid, ({ status }) => status?.phase === "Created");
    assert.deepEqual(await portsByPod(bed), Object.fromEntries(uids.map((uid) => [uid, 2])));
    const ids = new Set((await bed.ports()).map(({ id }) => id));
    for (const claim of await bed.claims()) {
      for (const { portID, createdByController } of claim.status?.nics ?? []) {
        assert.equal(ids.has(portID ?? ""), true);
        assert.equal(createdByController, true);
      }
    }
  });

  test(`nic-controller: killed ${point} Neutron deletes a port, again and again: nothing is left (T-21)`, async (t) => {
    const bed = await NicBed.open(t, { shared });
    const uids: string[] = [];
    let one = bed.run();
    for (let round = 0; round < ROUNDS; round += 1)
      uids.push(await bed.pod(`p${round}`, { nics: [{}, { name: "eth1" }] }));
    const stays = await bed.pod("stays");
    for (const uid of [...uids, stays]) await bed.untilClaim(uid, ({ status }) => status?.phase === "Created");
    for (let round = 0; round < ROUNDS; round += 1) {
      const killed = bed.killAt(one, deletesPort, point);
      await bed.deletePod(`p${round}`);
      await killed;
      one = bed.run();
    }
    // The claims stay for 70 s, as an earlier controller may have asked for ports that come late.
    await bed.until("the ports of the pods are gone, in Neutron and in their claims", async () => {
      const claims = await Promise.all(uids.map((uid) => bed.claim(uid)));
      const hasNone = claims.every((claim) => claim?.status?.nics?.some(({ portID }) => portID !== undefined) !== true);
      return hasNone && Object.keys(await portsByPod(bed)).length === 1;
    });
    assert.deepEqual(await portsByPod(bed), { [stays]: 1 });
  });
}

test("nic-controller: a request or an answer that is lost makes no second port (T-22)", async (t) => {
  const bed = await NicBed.open(t, { shared });
  const fates = ["lose-answer", "lose-request", "lose-answer"] as const;
  let creates = 0;
  bed.proxy.rule = (request) => {
    if (!makesPorts(request)) return "pass";
    creates += 1;
    return fates[creates - 1] ?? "pass";
  };
  bed.run("--max-bulk=2");
  const uids = await Promise.all(Array.from({ length: 12 }, (_, at) => bed.pod(`p${at}`)));
  for (const uid of uids) await bed.untilClaim(uid, ({ status }) => status?.phase === "Created");
  assert.ok(creates >= fates.length, `${creates} requests`);
  assert.deepEqual(await portsByPod(bed), Object.fromEntries(uids.map((uid) => [uid, 1])));
});

test("nic-controller: a request that Neutron does only after the next one has made the port: the second port is found and deleted (T-22)", async (t) => {
  const bed = await NicBed.open(t, { shared });
  let creates = 0;
  bed.proxy.rule = (request) => {
    if (!makesPorts(request)) return "pass";
    creates += 1;
    return creates === 1 ? "lose-client" : "pass";
  };
  bed.run();
  const uid = await bed.pod("p");
  const claim = await bed.untilClaim(uid, ({ status }) => status?.phase === "Created");
  const recorded = nicOf(claim).portID;
  await bed.until("both requests have made a port, or the first was seen in time", async () => creates >= 1);
  await bed.until("one port is left", async () => {
    const ports = await bed.ports();
    return creates === 2 && ports.length === 1 && ports[0]?.id === recorded;
  });
  assert.equal(nicOf((await bed.claim(uid)) ?? assert.fail()).portID, recorded);
});

/** Holds the first request that makes ports; returns what releases it. */
function holdFirstCreate(bed: NicBed): { readonly held: Promise<void>; readonly release: () => void } {
  const [held, released] = [new Deferred(), new Deferred()];
  let isFirst = true;
  bed.proxy.rule = async (request): Promise<ProxyVerdict> => {
    if (!isFirst || !makesPorts(request)) return "pass";
    isFirst = false;
    held.resolve();
    await released.promise;
    return "pass";
  };
  return { held: held.promise, release: () => released.resolve() };
}

test("nic-controller: a leader that is stopped in a batch and loses its Lease asks nothing when it continues (T-23)", async (t) => {
  const bed = await NicBed.open(t, { shared });
  const { held, release } = holdFirstCreate(bed);
  const first = bed.run();
  const uids = await Promise.all(Array.from({ length: 10 }, (_, at) => bed.pod(`p${at}`)));
  await held;
  first.child.kill("SIGSTOP");
  t.after(() => first.child.kill("SIGCONT"));
  const stoppedAt = performance.now();
  await bed.freeLease();
  bed.run();
  for (const uid of uids) await bed.untilClaim(uid, ({ status }) => status?.phase === "Created");
  // Its request arrives after those of the second one, which has looked before.
  release();
  await bed.until("Neutron has done both requests", async () => (await bed.ports()).length > uids.length);
  await bed.until("each NIC has one port", async () => (await bed.ports()).length === uids.length);
  await bed.until("its Lease would have expired", async () => performance.now() - stoppedAt > LEASE_MS);
  first.child.kill("SIGCONT");
  const { code } = await first.ended;
  assert.notEqual(code, 0);
  assert.deepEqual(await portsByPod(bed), Object.fromEntries(uids.map((uid) => [uid, 1])));
  // Its answer, which it has read by now, has not replaced what the second one has stored.
  const ids = new Set((await bed.ports()).map(({ id }) => id));
  for (const claim of await bed.claims()) assert.equal(ids.has(nicOf(claim).portID ?? ""), true);
});
