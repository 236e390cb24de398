/** The limits of the specification for cases for which the peer has no figures (docs/spec/service-proxy.md#4). */
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { HealthServer, NodeHealth } from "#features/service-health";
import { quantiles, timed, timedTurns, whileAsked } from "./service-sync.measure.ts";
import { OurProxy } from "./service-sync.ours.ts";
import { firstPackets, openWorld } from "./service-sync.world.ts";

const CHANGES = 200;
const BURST = 1000;
const MIN_SYNC_MS = 1000;
const ASKERS = 8;
const IDLE_MS = 3000;
/** The connections in one turn of a side, and the number of turns of each side. */
const TURN = { connects: 100, turns: 30 } as const;

/** A figure and its limit. */
export interface Budget {
  readonly case: string;
  readonly unit: string;
  readonly ours: number;
  readonly budget: number;
}

/** Each runs in a separate process. */
export const BUDGETS: Readonly<Record<string, () => Promise<readonly Budget[]>>> = {
  many,
  burst,
  restart,
  answers,
  packets,
};

/** Many Services of one endpoint. */
async function many(): Promise<Budget[]> {
  const size = 45_000;
  await using world = await openWorld(`isb-many-${process.pid}`);
  await using ours = new OurProxy(world.netns, { size, endpoints: 1 });
  const { ms } = await timed(() => ours.fill());
  const changes = await timedTurns(CHANGES, (turn) => ours.change(Math.floor(size / 2), turn));
  const name = `${size} Services of 1 endpoint`;
  return [
    { case: `first sync, ${name}`, unit: "s", ours: ms / 1000, budget: 8 },
    { case: `one endpoint changed, p50, ${name}`, unit: "ms", ours: changes.p50, budget: 60 },
    { case: `one endpoint changed, p99, ${name}`, unit: "ms", ours: changes.p99, budget: 150 },
  ];
}

/** The changes of a cluster in which many workloads are rolled out at once, at the default pace of syncs. */
async function burst(): Promise<Budget[]> {
  await using world = await openWorld(`isb-burst-${process.pid}`);
  await using ours = new OurProxy(world.netns, { size: 10_000, minSyncMs: MIN_SYNC_MS });
  await ours.fill();
  // The pause after that sync is over: the first change is synced at once, as in a cluster without earlier changes.
  await new Promise((resolve) => setTimeout(resolve, MIN_SYNC_MS));
  const before = ours.reports.length;
  const startedAt = performance.now();
  for (let at = 0; at < BURST; at += 1) {
    ours.tell(at, 1);
    const due = startedAt + (at + 1) * (1000 / BURST);
    if (due - performance.now() > 1) await new Promise((resolve) => setTimeout(resolve, due - performance.now()));
  }
  const { ms } = await timed(() => ours.applied());
  const transactions = ours.reports.slice(before).reduce((sum, report) => sum + report.transactions, 0);
  const name = `${BURST} changes in 1 s, 10000 Services`;
  return [
    { case: `from the last to the kernel, ${name}`, unit: "s", ours: ms / 1000, budget: 2 },
    { case: `transactions, ${name}`, unit: "", ours: transactions, budget: 5 },
  ];
}

/** A start with an unchanged cluster. */
async function restart(): Promise<Budget[]> {
  const options = { size: 10_000, endpoints: 15 };
  await using world = await openWorld(`isb-again-${process.pid}`);
  const first = new OurProxy(world.netns, options);
  const filled = await timed(() => first.fill());
  await first[Symbol.asyncDispose]();
  await using second = new OurProxy(world.netns, options);
  const { ms, result } = await timed(() => second.fill());
  const name = `${options.size} Services of ${options.endpoints} endpoints`;
  return [
    { case: `first sync, ${name}`, unit: "s", ours: filled.ms / 1000, budget: 10 },
    { case: `start again, ${name}`, unit: "s", ours: ms / 1000, budget: 15 },
    { case: `elements changed by that, ${name}`, unit: "", ours: result.changes, budget: 0 },
  ];
}

/** `/healthz` of the real server, requested by another thread over kept connections. */
async function answers(): Promise<Budget[]> {
  await using world = await openWorld(`isb-answers-${process.pid}`);
  const health = new NodeHealth({ healthTimeoutMs: 60_000, clock: systemClock });
  const onBug = (error: unknown): never => {
    throw error;
  };
  const server = new HealthServer(
    { health, clock: systemClock, log: nullLogger, onBug },
    { address: { host: "127.0.0.1", port: 0 }, lingerMs: 0 },
  );
  const stop = new AbortController();
  const serving = server.run({ signal: stop.signal });
  const { port } = server;
  if (port === undefined) throw new Error("the health server does not listen");
  const load = { connections: ASKERS, pauseMs: 0 };
  const idle = await whileAsked(port, load, () => new Promise((resolve) => setTimeout(resolve, IDLE_MS)));
  await using ours = new OurProxy(world.netns, { size: 10_000 });
  const busy = await whileAsked(port, { connections: 1, pauseMs: 1 }, () => ours.fill());
  stop.abort();
  await serving;
  return [
    // Lower is better in every row: 5,000 a second are 200 us each.
    { case: "an answer of /healthz, idle", unit: "us", ours: 1e6 / idle.answersPerSecond, budget: 200 },
    { case: "an answer of /healthz in a first sync, p99", unit: "ms", ours: busy.answerMs.p99, budget: 50 },
  ];
}

/** First packets through few Services and through many, in turns, to the same servers. */
async function packets(): Promise<Budget[]> {
  const [few, many_] = [10, 30_000];
  await using fewWorld = await openWorld(`isb-few-${process.pid}`);
  await using manyWorld = await openWorld(`isb-lots-${process.pid}`);
  await using fewProxy = new OurProxy(fewWorld.netns, { size: few });
  await using manyProxy = new OurProxy(manyWorld.netns, { size: many_ });
  await fewProxy.fill();
  await manyProxy.fill();
  const took: { readonly few: number[]; readonly many: number[] } = { few: [], many: [] };
  // The first turn warms up.
  for (let turn = 0; turn <= TURN.turns; turn += 1) {
    const [a, b] = [
      await firstPackets(fewWorld.netns, few, TURN.connects),
      await firstPackets(manyWorld.netns, few, TURN.connects),
    ];
    if (turn === 0) continue;
    took.few.push(...a);
    took.many.push(...b);
  }
  const times = quantiles(took.many).p50 / quantiles(took.few).p50;
  return [{ case: `first packet, p50, ${many_} Services over ${few}`, unit: "times", ours: times, budget: 1.1 }];
}
