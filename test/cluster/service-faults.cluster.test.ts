// quiet: it measures time, and uses little of the processor
/** A slow and faulty API server, and events out of order, in front of the shipped program (docs/spec/service-proxy.md#3.2: R8, S6, H7). */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { sleep } from "#base/async";
import type { IpAddress, IpFamily } from "#base/ip";
import { until } from "#test/lab";
import type { ServiceBed } from "#test/service-bed";
import {
  createService,
  deleteService,
  openServiceBed,
  removeSlice,
  setSlice,
  startSynced,
  stop,
} from "#test/service-objects";
import { addressesOf, SERVICE_PORT } from "../../src/features/service-proxy/testing/fixture.ts";
import { endpointObject } from "../../src/features/service-proxy/testing/objects.ts";

const FAMILIES = [4, 6] as const;
const ENDPOINTS = 6;
const ROUNDS = process.env["ISTHMUS_SOAK"] === "full" ? 300 : 25;
/** After this time without a write nothing of a change is left to be written, in milliseconds: old elements go 10 ms after it on an idle machine. */
const QUIET_MS = 500;
/** Each of a few endpoints is met by so many connections, but for one time in a million. */
const TRIES = 40;

let cluster: ServiceBed;
let more: Record<IpFamily, readonly IpAddress[]>;
before(async () => {
  cluster = await openServiceBed(`isp-fault-${process.pid}`);
  more = { 4: await cluster.bed.serveMore(4, ENDPOINTS), 6: await cluster.bed.serveMore(6, ENDPOINTS) };
  await choose(() => true);
});
after(() => cluster[Symbol.asyncDispose]());

/** These endpoints, in both families; all of them are alive all the time. */
async function choose(isChosen: (at: number) => boolean, annotations: object = {}): Promise<void> {
  for (const family of FAMILIES) await chooseOf(family, isChosen, annotations);
}

async function chooseOf(family: IpFamily, isChosen: (at: number) => boolean, annotations: object = {}): Promise<void> {
  const chosen = more[family].filter((_, at) => isChosen(at));
  await setSlice(
    cluster,
    family,
    chosen.map((address) => endpointObject(address, "elsewhere")),
    { annotations },
  );
}

/** The endpoints that answer, by their number; or what becomes of connections instead. */
async function answering(family: IpFamily, tries = TRIES): Promise<string> {
  const seen = new Set<number>();
  for (let at = 0; at < tries; at += 1) {
    const { clusterIP } = addressesOf(family);
    const reached = await cluster.bed.connect("external", clusterIP, SERVICE_PORT, { droppedMs: 900 });
    if (reached.kind !== "delivered") return reached.kind;
    seen.add(more[family].findIndex((address) => reached.by.startsWith(`${address} `)));
  }
  return [...seen].sort().join(" ");
}

const answers = (wanted: string, deadlineMs = 30_000): Promise<void> =>
  until(
    `in both families answer: ${wanted}`,
    async () => (await Promise.all(FAMILIES.map((family) => answering(family)))).every((seen) => seen === wanted),
    { deadlineMs },
  );

test("API server: answers that take a quarter of a second delay changes, and nothing else", async (t) => {
  const rule = cluster.server.faults.add({ action: { latencyMs: 250 } });
  t.after(() => cluster.server.faults.remove(rule));
  const proxy = await startSynced(t, cluster);
  await answers("0 1 2 3 4 5");
  await choose((at) => at === 2);
  await answers("2", 5000);
  await choose(() => true);
  await stop(proxy);
});

test("API server: in a storm of expired watches, errors and cut connections no connection fails, and the last state wins", async (t) => {
  const { faults } = cluster.server;
  const proxy = await startSynced(t, cluster);
  const userAgent = "service-proxy";
  for (const rule of [
    { match: { verb: "watch", userAgent, probability: 0.3 }, action: { status: 410 } },
    { match: { verb: "list", userAgent, probability: 0.2 }, action: { status: 500 } },
    { match: { verb: ["list", "watch"], userAgent, probability: 0.1 }, action: { cut: "drop-connection" } },
  ] as const) {
    faults.add(rule);
  }
  t.after(() => faults.clear());
  const failures: string[] = [];
  let connections = 0;
  let isDone = false;
  const load = async (family: IpFamily): Promise<void> => {
    while (!isDone) {
      const seen = await answering(family, 1);
      connections += 1;
      if (!/^\d$/.test(seen)) failures.push(`IPv${family} ${seen}`);
    }
  };
  const loads = FAMILIES.map(load);
  for (let round = 0; round < ROUNDS; round += 1) {
    await choose((at) => at === round % ENDPOINTS || (at + round) % 3 === 0);
    if (round % 2 === 0) faults.expireWatches({ userAgent });
    else faults.dropWatches({ userAgent });
    await sleep(30);
  }
  assert.ok(
    faults.list().some(({ hits }) => hits > 0),
    "the storm has hit",
  );
  faults.clear();
  await choose((at) => at === 1 || at === 4);
  await answers("1 4");
  isDone = true;
  await Promise.all(loads);
  assert.deepEqual(failures, []);
  assert.ok(connections > 100, `only ${connections}`);
  await stop(proxy);
});

test("events: unchanged objects, and changes of fields that do not count, write nothing", async (t) => {
  const proxy = await startSynced(t, cluster);
  const { elements } = cluster.bed;
  /** Waits until the proxy has written nothing for some time: old elements go a moment after a change. */
  const settled = async (): Promise<void> => {
    let [seen, since] = [elements.generation(), performance.now()];
    await until("the proxy writes nothing", () => {
      const now = elements.generation();
      if (now !== seen) [seen, since] = [now, performance.now()];
      return performance.now() - since > QUIET_MS;
    });
  };
  /** The number of transactions that one change that does count takes, and what is told before it. */
  const transactions = async (tellBefore: () => Promise<void>): Promise<number> => {
    await choose(() => true);
    await answers("0 1 2 3 4 5");
    await settled();
    const before_ = elements.generation();
    await tellBefore();
    // One object: whether two come in one sync or in two is a matter of time.
    await chooseOf(4, (at) => at === 3);
    await until("in IPv4 answers: 3", async () => (await answering(4)) === "3");
    await settled();
    return elements.generation() - before_;
  };
  // The first change makes the chains of one and of six endpoints, which stay.
  await transactions(async () => undefined);
  const alone = await transactions(async () => undefined);
  const amidNoise = () =>
    transactions(async () => {
      for (let round = 0; round < 20; round += 1) {
        await choose(() => true, { "example.org/round": String(round) });
        if (round % 5 === 0) cluster.server.faults.expireWatches();
      }
    });
  assert.ok(alone > 0);
  // What the proxy does in its own time, such as removing chains that nothing uses, may fall into one of them.
  let seen = await amidNoise();
  for (let tries = 0; tries < 2 && seen !== alone; tries += 1) seen = await amidNoise();
  assert.equal(seen, alone);
  await stop(proxy);
});

test("events: slices before their Service, a Service before its slices, and a Service that is made again", async (t) => {
  const proxy = await startSynced(t, cluster);
  await choose((at) => at === 0);
  await answers("0");
  // The watch of Services is late: what it tells comes after all that slices tell.
  const isLate = { match: { resource: "services", userAgent: "service-proxy" }, action: { latencyMs: 300 } } as const;
  for (const match of [{ resource: "services" }, { resource: "endpointslices" }]) {
    const rule = cluster.server.faults.add({ ...isLate, match: { ...isLate.match, ...match } });
    await deleteService(cluster);
    for (const family of FAMILIES) await removeSlice(cluster, family);
    cluster.server.faults.dropWatches(match);
    await answers("dropped");
    await choose((at) => at === 5);
    cluster.server.faults.dropWatches(match);
    await createService(cluster);
    await answers("5");
    cluster.server.faults.remove(rule);
  }
  await stop(proxy);
});

test("API server: changes from before its return are in force within five seconds after it, with few lists", async (t) => {
  const { faults } = cluster.server;
  const proxy = await startSynced(t, cluster);
  await choose((at) => at < 2);
  await answers("0 1");
  const userAgent = "service-proxy";
  faults.add({ match: { userAgent }, action: { cut: "drop-connection" } });
  faults.dropWatches({ userAgent });
  await choose((at) => at > 3);
  const awayUntil = performance.now() + 3000;
  while (performance.now() < awayUntil) {
    for (const family of FAMILIES) assert.match(await answering(family, 5), /^[01]( 1)?$/, "it goes on as it was");
    await sleep(100);
  }
  faults.clear();
  const lists = faults.add({ match: { verb: "list", userAgent }, action: { latencyMs: 1 } });
  await answers("4 5", 5000);
  const hits = faults.list().find(({ id }) => id === lists)?.hits ?? 0;
  assert.ok(hits <= 8, `${hits} lists`);
  faults.clear();
  await stop(proxy);
});
