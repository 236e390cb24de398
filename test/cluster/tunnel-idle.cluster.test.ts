// alone: it measures time or memory, which other work on the machine changes
/**
 * docs/spec/tunnel.md#8.8 and #15.D: thousands of idle connections cost little, and each still works. ISTHMUS_SOAK=full makes
 * them ten thousand.
 */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import type { Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { start, until } from "#test/lab";
import { connectThrough, ProxyBed, type ProxyProcess, roundTrip } from "#test/proxies";
import { TunnelClient } from "../../src/features/tunnel/testing/client.ts";

const FULL = process.env["ISTHMUS_SOAK"] === "full";
const CONNECTIONS = FULL ? 10_000 : 1500;
/** Memory bound of a program, in MiB: 120, and 4 KiB for each connection (docs/spec/tunnel.md#8.8). */
const MAX_MIB = 120 + (CONNECTIONS * 4) / 1024;
const AT_ONCE = 64;
/** Resident memory of an idle connection in either program at rest, at most, in KiB; only of ten thousand is it more than the noise. */
const MAX_KIB = 4;
/** After this a program is at rest: it has returned free memory after its start, and after work that made it grow (`release-memory.ts`). */
const AT_REST_MS = 75_000;
/** The time over which the processor's time is counted, in milliseconds, and the share of it that idle connections may use. */
const COUNTED_MS = 20_000;
const MAX_PROCESSOR_PART = 0.01;

const residentMiB = ({ running }: ProxyProcess): number =>
  Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${running.child.pid}/status`, "utf8"))?.[1]) / 1024;
const peakMiB = ({ running }: ProxyProcess): number =>
  Number(/^VmHWM:\s+(\d+) kB/m.exec(readFileSync(`/proc/${running.child.pid}/status`, "utf8"))?.[1]) / 1024;
/** Seconds of a processor that a program has used: utime and stime of proc(5), in ticks of 10 ms. */
const processorSeconds = ({ running }: ProxyProcess): number => {
  const stat = readFileSync(`/proc/${running.child.pid}/stat`, "utf8");
  const [user, system] = stat
    .slice(stat.lastIndexOf(")") + 2)
    .split(" ")
    .slice(11, 13);
  return (Number(user) + Number(system)) / 100;
};
const descriptorsOf = ({ running }: ProxyProcess): number => readdirSync(`/proc/${running.child.pid}/fd`).length;

/** An echo endpoint in a process of its own: its descriptors would be too many for this process. */
async function echoElsewhere(t: TestContext): Promise<number> {
  const running = start(
    [
      process.execPath,
      "-e",
      `require("node:net").createServer((socket) => socket.on("error", () => socket.destroy()).pipe(socket))
      .listen({ port: 0, host: "127.0.0.1", backlog: 1024 }, function () { console.error("port " + this.address().port); });`,
    ],
    { timeoutMs: 400_000 },
  );
  t.after(async () => {
    running.child.kill("SIGKILL");
    await running.ended;
  });
  const port = (): string | undefined => /^port (\d+)$/m.exec(running.said())?.[1];
  await until("the endpoint listens", () => port() !== undefined, { seen: running.said });
  return Number(port());
}

/** Idle connections take {@link MAX_KIB} each over the memory of before, and no time of the processor, once the programs are at rest. */
async function costNothingAtRest(
  t: TestContext,
  programs: readonly ProxyProcess[],
  before: readonly number[],
): Promise<void> {
  await sleep(AT_REST_MS);
  const kib = programs.map((one, at) => ((residentMiB(one) - (before[at] ?? 0)) * 1024) / CONNECTIONS);
  const used = programs.map(processorSeconds);
  await sleep(COUNTED_MS);
  const parts = programs.map((one, at) => (processorSeconds(one) - (used[at] ?? 0)) / (COUNTED_MS / 1000));
  const words =
    `at rest a connection has ${kib.map((one) => one.toFixed(2)).join(" and ")} KiB in server and agent, ` +
    `and all together ${parts.map((one) => (one * 100).toFixed(2)).join(" and ")} % of a processor`;
  t.diagnostic(words);
  for (const one of kib) assert.ok(one <= MAX_KIB, words);
  for (const one of parts) assert.ok(one <= MAX_PROCESSOR_PART, words);
}

test(`tunnel: ${CONNECTIONS} idle connections hold ${Math.round(MAX_MIB)} MiB at most on either hop, all work, and leave nothing`, {
  timeout: 400_000,
}, async (t) => {
  const bed = await ProxyBed.open();
  t.after(() => bed[Symbol.asyncDispose]());
  const server = await bed.server(["--mode=http-connect"]);
  const agent = await bed.agent([server]);
  await until("the agent is ready", async () => (await agent.health("/readyz")).startsWith("200 "));
  const port = await echoElsewhere(t);
  const sockets: Socket[] = [];
  const open = async (): Promise<void> => {
    const socket = await bed.dial(server.udsPath);
    assert.match(await connectThrough(socket, `127.0.0.1:${port}`), /^HTTP\/1\.1 200 /);
    sockets.push(socket);
  };
  if (FULL) await sleep(AT_REST_MS);
  const [before, descriptors] = [[server, agent].map(residentMiB), [server, agent].map(descriptorsOf)];
  const startedMs = performance.now();
  let left = CONNECTIONS;
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      while (left > 0) {
        left -= 1;
        await open();
      }
    }),
  );
  const seconds = (performance.now() - startedMs) / 1000;
  assert.equal(await server.metric("server_established_connections"), CONNECTIONS);
  assert.equal(await agent.metric("agent_open_endpoint_connections"), CONNECTIONS);
  const held = [server, agent].map(residentMiB);
  const text = (numbers: readonly number[]): string => numbers.map((one) => one.toFixed(0)).join(" and ");
  t.diagnostic(
    `${CONNECTIONS} in ${seconds.toFixed(1)} s; RSS of server and agent ${text(before)} MiB, then ${text(held)}`,
  );
  for (const mib of held) assert.ok(mib <= MAX_MIB, `${text(held)} MiB for ${CONNECTIONS} connections`);

  if (FULL) await costNothingAtRest(t, [server, agent], before);

  for (const [at, socket] of sockets.entries()) assert.equal(await roundTrip(socket, `still ${at}`), `still ${at}`);
  assert.equal(await server.metric("server_buffered_bytes"), 0);
  for (const socket of sockets) socket.destroy();
  const idle = async (): Promise<boolean> =>
    (await server.metric("server_established_connections")) === 0 &&
    (await server.metric("server_http_connections")) === 0 &&
    (await agent.metric("agent_open_endpoint_connections")) === 0;
  await until("all is closed", idle, { deadlineMs: 60_000 });
  for (const [at, program] of [server, agent].entries()) {
    await until("descriptors are given back", () => descriptorsOf(program) <= (descriptors[at] ?? 0) + 3);
  }
});

const BUSY = 16;
const ECHOED_BYTES = 12 * 1024 * 1024;
/** Memory bound of either hop at its peak, MiB (docs/spec/tunnel.md#8.8). */
const MAX_PEAK_MIB = 150;

test(`tunnel: ${BUSY} gRPC frontends that send and receive as fast as they can hold ${MAX_PEAK_MIB} MiB at most on either hop`, {
  timeout: 100_000,
}, async (t) => {
  const bed = await ProxyBed.open();
  t.after(() => bed[Symbol.asyncDispose]());
  const server = await bed.server(["--mode=grpc"]);
  const agent = await bed.agent([server]);
  await until("the agent is ready", async () => (await agent.health("/readyz")).startsWith("200 "));
  const port = await echoElsewhere(t);
  const block = Buffer.alloc(64 * 1024, 7);
  const echo = async (): Promise<void> => {
    const client = await TunnelClient.open(await bed.dial(server.udsPath));
    assert.equal((await client.dial(`127.0.0.1:${port}`)).kind, "open");
    for (let sent = 0; sent < ECHOED_BYTES; sent += block.length) await client.writeAll(block);
    await client.until(() => client.received === ECHOED_BYTES, 60_000);
    client.destroy();
  };
  await Promise.all(Array.from({ length: BUSY }, echo));
  const peaks = [server, agent].map(peakMiB);
  t.diagnostic(`peaks ${peaks.map(Math.round).join(" and ")} MiB`);
  for (const peak of peaks) assert.ok(peak <= MAX_PEAK_MIB, `${peaks.map(Math.round).join(" and ")} MiB`);
});

const RELAYED_BYTES = 512 * 1024 * 1024;
/** Collections of the old generation while they are relayed; with V8's own rule, up to 50 for each program. */
const MAX_COLLECTIONS = 12;

test(`tunnel: bytes that are relayed are no reason to collect the heap of either hop more than ${MAX_COLLECTIONS} times`, {
  timeout: 100_000,
}, async (t) => {
  const bed = await ProxyBed.open();
  t.after(() => bed[Symbol.asyncDispose]());
  const server = await bed.server(["--mode=http-connect"]);
  const agent = await bed.agent([server]);
  await until("the agent is ready", async () => (await agent.health("/readyz")).startsWith("200 "));
  const source = start([
    process.execPath,
    "-e",
    `const block = Buffer.alloc(65536);
    const server = require("node:net").createServer((socket) => {
      let left = ${RELAYED_BYTES};
      const more = () => { while (left > 0) { left -= block.length; if (!socket.write(block)) return; } socket.end(); };
      socket.on("error", () => socket.destroy()).on("drain", more);
      more();
    }).listen(0, "127.0.0.1", () => console.error("port " + server.address().port));`,
  ]);
  t.after(async () => {
    source.child.kill("SIGKILL");
    await source.ended;
  });
  const port = (): string | undefined => /^port (\d+)$/m.exec(source.said())?.[1];
  await until("the endpoint listens", () => port() !== undefined, { seen: source.said });
  const collections = async ({ health }: ProxyProcess): Promise<number> =>
    Number(/^nodejs_gc_duration_seconds_count\{kind="major"\} (\d+)$/m.exec(await health("/metrics"))?.[1] ?? 0);
  const before = await Promise.all([server, agent].map(collections));
  const socket = await bed.dial(server.udsPath);
  assert.match(await connectThrough(socket, `127.0.0.1:${port()}`), /^HTTP\/1\.1 200 /);
  let received = 0;
  for await (const chunk of socket) received += (chunk as Buffer).length;
  assert.equal(received, RELAYED_BYTES);
  const made = (await Promise.all([server, agent].map(collections))).map((now, at) => now - (before[at] ?? 0));
  t.diagnostic(`${made.join(" and ")} collections`);
  for (const count of made) assert.ok(count <= MAX_COLLECTIONS, `${made.join(" and ")} collections`);
});

const STALLED = 100;
/** Memory bound of a hop, in MiB: its base, and 4 MiB for each reader (docs/spec/tunnel.md#8.8). */
const MAX_STALLED_MIB = 150 + 4 * STALLED;

test(`tunnel: ${STALLED} readers that stop hold ${MAX_STALLED_MIB} MiB at most on either hop, and no other connection waits`, {
  timeout: 100_000,
}, async (t) => {
  const bed = await ProxyBed.open();
  t.after(() => bed[Symbol.asyncDispose]());
  const server = await bed.server(["--mode=http-connect"]);
  const agent = await bed.agent([server]);
  await until("the agent is ready", async () => (await agent.health("/readyz")).startsWith("200 "));
  const block = Buffer.alloc(1 << 20, 1);
  let sent = 0;
  const endless = await bed.endpoint((socket) => {
    const more = (): void => {
      do sent += block.length;
      while (!socket.destroyed && socket.write(block));
    };
    socket.on("drain", more).resume();
    more();
  });
  const echo = await bed.echo();
  const open = async (port: number): Promise<Socket> => {
    const socket = await bed.dial(server.udsPath);
    assert.match(await connectThrough(socket, `127.0.0.1:${port}`), /^HTTP\/1\.1 200 /);
    return socket;
  };
  const stalled = await Promise.all(Array.from({ length: STALLED }, () => open(endless)));
  for (const socket of stalled) socket.pause();
  let before = -1;
  await until(
    "nothing moves any more",
    async () => {
      const still = before === sent;
      before = sent;
      return still;
    },
    { everyMs: 500 },
  );
  const other = await open(echo);
  let slowestMs = 0;
  for (let round = 0; round < 200; round += 1) {
    const startedMs = performance.now();
    assert.equal(await roundTrip(other, `round ${round}`), `round ${round}`);
    slowestMs = Math.max(slowestMs, performance.now() - startedMs);
  }
  const held = [server, agent].map(residentMiB);
  const words = `${held.map(Math.round).join(" and ")} MiB, slowest echo ${slowestMs.toFixed(1)} ms`;
  t.diagnostic(words);
  for (const mib of held) assert.ok(mib <= MAX_STALLED_MIB, words);
  assert.ok(slowestMs < 500, words);
  const had = stalled.map(({ bytesRead }) => bytesRead);
  for (const socket of stalled) socket.resume();
  await until("all go on", () => stalled.every(({ bytesRead }, at) => bytesRead > (had[at] ?? 0) + (4 << 20)));
  for (const socket of [...stalled, other]) socket.destroy();
  await until("all is closed", async () => (await agent.metric("agent_open_endpoint_connections")) === 0);
  await until("nothing is held", async () => (await server.metric("server_buffered_bytes")) === 0);
});
