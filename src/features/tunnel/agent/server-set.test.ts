/** docs/spec/tunnel.md#11: agents behind one balancer, and servers that start and stop, with a fake clock. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { sleep } from "#base/async";
import { FakeClock } from "#base/clock";
import { type Logger, nullLogger } from "#base/log";
import { SystemNames } from "#base/names";
import { MetadataKey } from "#wire/konnectivity";
import { LinkError, type OpenedStream } from "../link/outgoing.ts";
import type { PacketStreamHandlers } from "../link/packet-stream.ts";
import { BufferBudget } from "../mux/budget.ts";
import { MUX_DEFAULTS } from "../mux/options.ts";
import { Counts } from "../testing/bed.ts";
import { FakePulse } from "../testing/fake-pulse.ts";
import { ServerAddresses } from "./server-addresses.ts";
import { ServerSet } from "./server-set.ts";

const SERVERS = 3;
const AGENTS = 100;
const BALANCER = "192.0.2.1";
/** The default of `--connect-timeout`. */
const CONNECT_TIMEOUT_MS = 20_000;

/** Servers behind a balancer that chooses at random. `undefined`: one that refuses. */
class Cluster implements AsyncDisposable {
  readonly clock = new FakeClock();
  /** The servers behind the balancer. */
  readonly backends: (string | undefined)[] = ["a", "b", "c"];
  readonly sets: ServerSet[] = [];
  connects = 0;
  /** The log entries of agents: the message, and the servers in it. */
  readonly lines: unknown[] = [];
  readonly #stop = new AbortController();
  readonly #open = new Map<string, Set<PacketStreamHandlers>>();
  readonly #running: Promise<void>[] = [];
  #seed = 12345;

  /**
   * All agents have a name of servers, which resolves to the balancer's address and these: `unreachable` ones refuse, and no packet comes from
   * `silent` ones.
   */
  constructor(
    agents: number,
    name: { readonly unreachable?: readonly string[]; readonly silent?: readonly string[] } = {},
  ) {
    const { unreachable = [], silent = [] } = name;
    const names = new SystemNames({ clock: this.clock });
    for (let at = 0; at < agents; at += 1) {
      const addresses = new ServerAddresses(
        {
          clock: this.clock,
          connect: async ({ host }, { signal }) => {
            if (silent.includes(host)) {
              await sleep(CONNECT_TIMEOUT_MS, { clock: this.clock, signal });
              throw new LinkError("timeout", `${host}: no answer`);
            }
            if (unreachable.includes(host)) throw new LinkError("unreachable", `${host}: no route to host`);
            return this.#connect();
          },
          resolve: async () => [...silent, BALANCER, ...unreachable],
        },
        [{ host: "proxy", port: 8091 }],
      );
      const set = new ServerSet(
        {
          connect: (options) => addresses.connect(options),
          metrics: new Counts().agent(),
          clock: this.clock,
          log: this.#log,
          budget: new BufferBudget(1 << 20),
          names,
          random: () => this.#random(),
          onBug: (error) => assert.fail(String(error)),
        },
        {
          ...{ syncIntervalMs: 1000, syncIntervalCapMs: 10_000, reconnectJitterMs: 200, syncForever: false },
          ...{ capabilities: new Set<never>(), countSource: "default" },
          link: { mux: MUX_DEFAULTS, dialTimeoutMs: 5000, closeLingerMs: 1000 },
        },
      );
      this.sets.push(set);
      this.#running.push(set.run({ signal: this.#stop.signal }));
    }
  }

  readonly #note = (message: string, fields?: Readonly<Record<string, unknown>>): void =>
    void this.lines.push([message, fields?.["connected"]]);

  get #log(): Logger {
    return { ...nullLogger, info: this.#note, warn: this.#note };
  }

  #random(): number {
    this.#seed = (Math.imul(this.#seed, 1_664_525) + 1_013_904_223) >>> 0;
    return this.#seed / 2 ** 32;
  }

  #connect(): OpenedStream {
    this.connects += 1;
    const server = this.backends[Math.floor(this.#random() * this.backends.length)];
    if (server === undefined) throw new LinkError("unreachable", "refused");
    const streams = this.#open.get(server) ?? new Set();
    this.#open.set(server, streams);
    return {
      headers: { [MetadataKey.serverID]: server, [MetadataKey.serverCount]: String(SERVERS) },
      pulse: new FakePulse(),
      onLeaving: () => undefined,
      discard: () => undefined,
      start: (handlers) => {
        streams.add(handlers);
        return {
          ...{ isWritable: true, queuedBytes: 0, bytesSent: 0 },
          send: () => undefined,
          pause: () => undefined,
          resume: () => undefined,
          end: () => undefined,
          destroy: () => undefined,
        };
      },
    };
  }

  /** Every stream of a server ends. */
  kill(server: string): void {
    const streams = this.#open.get(server) ?? [];
    this.#open.delete(server);
    for (const { onClosed } of streams) onClosed(undefined);
  }

  /** Time until every agent has every server, in milliseconds. */
  async settled(): Promise<number> {
    const started = this.clock.monotonic();
    while (this.sets.some((set) => set.links.length < SERVERS)) {
      assert.ok(this.clock.monotonic() - started < 120_000, "an agent does not find all servers");
      await this.clock.advance(100);
    }
    return this.clock.monotonic() - started;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.clock.advance(0);
    await Promise.all(this.#running);
  }
}

test("ServerSet: a server that is replaced among three has all agents within 10 s", async (t) => {
  await using cluster = new Cluster(AGENTS);
  await cluster.settled();
  cluster.backends[1] = "d";
  cluster.kill("b");
  const took = await cluster.settled();
  t.diagnostic(`${took} ms`);
  assert.ok(took <= 10_000, `${took} ms`);
});

test("ServerSet: an address of a balancer's name that does not answer keeps no agent from any server", async (t) => {
  await using cluster = new Cluster(AGENTS, { unreachable: ["2001:db8::1"] });
  const took = await cluster.settled();
  t.diagnostic(`${took} ms`);
  assert.ok(took <= 10_000, `${took} ms`);
});

test("ServerSet: an address from which nothing comes delays no other one", async (t) => {
  await using cluster = new Cluster(1, { silent: ["2001:db8::1", "2001:db8::2"] });
  const [set] = cluster.sets;
  assert.ok(set !== undefined);
  const withLink = async (): Promise<number> => {
    const started = cluster.clock.monotonic();
    while (set.links.length === 0) {
      assert.ok(cluster.clock.monotonic() - started < 120_000);
      await cluster.clock.advance(100);
    }
    return cluster.clock.monotonic() - started;
  };
  const first = await withLink();
  // One server is left. The agent looks for the others at the silent addresses, when its only link ends.
  cluster.backends.fill("a");
  for (const server of ["b", "c"]) cluster.kill(server);
  await withLink();
  await cluster.clock.advance(5000);
  cluster.kill("a");
  assert.equal(set.links.length, 0);
  const again = await withLink();
  t.diagnostic(`${first} and ${again} ms`);
  assert.ok(first <= 2000 && again <= 2000, `${first} and ${again} ms`);
});

test("ServerSet: an address of a balancer's name from which nothing comes keeps no agent from any server", async (t) => {
  await using cluster = new Cluster(AGENTS, { silent: ["2001:db8::1"] });
  const took = await cluster.settled();
  t.diagnostic(`${took} ms`);
  assert.ok(took <= 15_000, `${took} ms`);
});

test("ServerSet: after a rolling restart all agents have all servers within 6 s", async (t) => {
  await using cluster = new Cluster(AGENTS);
  await cluster.settled();
  for (const [at, server] of ["a", "b", "c"].entries()) {
    // It refuses for a second while the balancer still chooses it.
    cluster.backends[at] = undefined;
    cluster.kill(server);
    await cluster.clock.advance(1000);
    cluster.backends[at] = `new-${server}`;
    await cluster.clock.advance(2000);
  }
  const took = await cluster.settled();
  t.diagnostic(`${took} ms`);
  assert.ok(took <= 6000, `${took} ms`);
});

test("ServerSet: attempts to find a missing server become rarer; an agent without any server tries each second", async () => {
  await using cluster = new Cluster(1);
  await cluster.settled();
  cluster.backends[1] = "a";
  cluster.kill("b");
  await cluster.clock.advance(60_000);
  const before = cluster.connects;
  await cluster.clock.advance(600_000);
  assert.ok(cluster.connects - before <= 61, `${cluster.connects - before} tries in ten minutes`);
  cluster.backends.fill(undefined);
  for (const server of ["a", "c"]) cluster.kill(server);
  await cluster.clock.advance(60_000);
  const then = cluster.connects;
  await cluster.clock.advance(600_000);
  const tries = cluster.connects - then;
  assert.ok(tries >= 600 / 1.1 - 1 && tries <= 601, `${tries} tries in ten minutes`);
  cluster.backends.fill("d");
  await cluster.clock.advance(1100);
  assert.equal(cluster.sets[0]?.links.length, 1);
});

test("ServerSet: an agent that does not reach one of its servers for a minute names those that it has, once, and when it has all", async () => {
  await using cluster = new Cluster(1);
  cluster.backends.splice(0, SERVERS, "a", "b", "b");
  const told = (): unknown[] =>
    cluster.lines.filter((line) => /proxy servers are/.test(String((line as unknown[])[0])));
  await cluster.clock.advance(50_000);
  assert.deepEqual(told(), []);
  await cluster.clock.advance(60_000);
  assert.equal(told().length, 1);
  const [[message, connected] = []] = told() as [unknown, string[]][];
  assert.equal(message, "some proxy servers are not reached: they have no stream of this agent");
  assert.deepEqual(connected?.toSorted(), ["a", "b"]);
  cluster.backends.splice(0, SERVERS, "c", "c", "c");
  await cluster.settled();
  await cluster.clock.advance(3000);
  assert.equal(told().length, 2);
});
