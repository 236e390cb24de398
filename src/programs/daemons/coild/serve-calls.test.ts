import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { FakeClock, systemClock } from "#base/clock";
import { Health } from "#base/health";
import { createLogger, nullLogger } from "#base/log";
import { SocketPathError } from "#base/unix-socket";
import { CniFailure, type CniFailureKind, callLocally } from "#features/cni";
import { HandoverError, handoverPath, NOT_MINE } from "#wire/cni-handover";
import type { CniCaller } from "#wire/cnirpc";
import { grpcCaller } from "../../runtime/coil-standalone/call-by-grpc.ts";
import { runPlugin } from "../../shared/cni-plugin/index.ts";
import { runHanded, serveCalls } from "./serve-calls.ts";

const TIMEOUT = { timeout: 30_000 };
const RESULT = {
  cniVersion: "1.1.0",
  interfaces: [{ name: "eth0", mac: "02:00:00:00:00:01", mtu: 1450, sandbox: "/run/netns/a" }],
  ips: [{ address: "10.0.0.1/32", interface: 0 }],
};
const ENV = {
  CNI_COMMAND: "ADD",
  CNI_CONTAINERID: "c1",
  CNI_NETNS: "/run/netns/none",
  CNI_IFNAME: "eth0",
  CNI_ARGS: "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=p",
};
const KINDS: readonly CniFailureKind[] = [
  "invalid-arguments",
  "unknown-pod",
  "invalid-config",
  "try-again",
  "not-ready",
  "not-available",
  "limited-connectivity",
  "internal",
];

/** The health part of the socket in tests about the other socket. */
const socketHealth = new Health().part("socket");

let dir = "";
before(() => {
  dir = mkdtempSync(join(tmpdir(), "isthmus-calls-"));
});
after(() => rmSync(dir, { recursive: true, force: true }));

/** Answers as the name of the pod says: a kind of failure, `malformed`, `own` (an error without a kind), or a result. */
const call: CniCaller = async (request) => {
  if (request.method === "GC") throw new CniFailure("internal", "no GC here");
  const { args, containerId } = request.args;
  const wanted = args["K8S_POD_NAME"] ?? "";
  const kind = KINDS.find((one) => one === wanted);
  if (kind !== undefined) throw new CniFailure(kind, `no: ${containerId} ü`, { cause: new Error("why") });
  if (wanted === "own") throw new HandoverError("malformed", "an expected error of another module");
  // Only ADD has a result. An ADD without one is as malformed by gRPC as in the process.
  return request.method !== "Add" || wanted === "malformed" ? undefined : RESULT;
};

function optionsFor(name: string) {
  const events: string[] = [];
  return {
    events,
    socketPath: join(dir, name),
    call,
    handlers: {},
    onProgress: (event: string, path: string) => events.push(`${event} ${path}`),
    onHandled: (path: string, code: number) => events.push(`handled ${path} ${code}`),
    onBug: (error: unknown) => assert.fail(String(error)),
    clock: systemClock,
  };
}

test(
  "runHanded: every call has the outcome and the metrics that the standalone executable gives it",
  TIMEOUT,
  async () => {
    const { events, ...options } = optionsFor("both.sock");
    await using _server = await serveCalls({
      ...options,
      log: nullLogger,
      socketHealth,
      health: new Health().part("hand-over"),
    });
    const path = handoverPath(options.socketPath) ?? "";
    const { signal } = new AbortController();
    const config = { cniVersion: "1.1.0", name: "net", type: "coil", socket: options.socketPath };
    const env = (more: object) => ({ ...ENV, ...more });
    const pod = (name: string) => env({ CNI_ARGS: `K8S_POD_NAMESPACE=ns;K8S_POD_NAME=${name}` });
    const chained = { ...config, cniVersion: "1.0.0", prevResult: RESULT };
    const calls: readonly (readonly [Record<string, string>, string | object])[] = [
      [{}, ""],
      [{ CNI_COMMAND: "VERSION" }, ""],
      [{ CNI_COMMAND: "VERSION" }, { cniVersion: "0.4.0" }],
      ...["0.3.1", "0.4.0", "1.0.0", "1.1.0", "0.2.0", "9.0.0"].map(
        (version) => [ENV, { ...config, cniVersion: version }] as const,
      ),
      ...["ADD", "DEL", "CHECK", "STATUS", "GC", "NOPE"].flatMap((command) => [
        [env({ CNI_COMMAND: command }), config] as const,
        [env({ CNI_COMMAND: command }), chained] as const,
        [{ CNI_COMMAND: command }, config] as const,
      ]),
      [env({ CNI_COMMAND: "GC" }), { ...config, "cni.dev/valid-attachments": [] }],
      ...[...KINDS, "own", "malformed"].flatMap((name) => [
        [pod(name), config] as const,
        // A DEL that cannot be served now looks for what is left of the attachment, in both places.
        [{ ...pod(name), CNI_COMMAND: "DEL" }, config] as const,
        [{ ...pod(name), CNI_COMMAND: "STATUS" }, config] as const,
      ]),
      [env({ CNI_NETNS: "/proc/self/ns/net" }), config],
      [env({ CNI_NETNS: "/proc/self/ns/net", CNI_COMMAND: "DEL" }), config],
      [env({ CNI_NETNS: "/proc/self/ns/net", CNI_NETNS_OVERRIDE: "TRUE" }), config],
      [env({ CNI_IFNAME: "a/b" }), config],
      [env({ CNI_ARGS: "what" }), config],
      [ENV, "no JSON"],
      [ENV, "[]"],
      [ENV, { ...config, name: "" }],
      [ENV, { ...config, socket: "relative" }],
    ];
    const codes = new Set<unknown>();
    for (const [given, input] of calls) {
      const stdin = typeof input === "string" ? input : JSON.stringify(input);
      const wanted = await runPlugin(given, Promise.resolve(stdin), grpcCaller("coild"));
      const told = events.splice(0);
      const outcome = await runHanded({ env: given, stdin, path }, options, { signal });
      assert.deepEqual(outcome, wanted, `${JSON.stringify(given)} ${stdin}`);
      assert.deepEqual(events.splice(0).sort(), told.sort(), `${JSON.stringify(given)} ${stdin}`);
      if (wanted.exitCode === 1 && wanted.to === "stdout") codes.add(JSON.parse(wanted.text).code);
    }
    assert.deepEqual(
      [...codes].map(Number).sort((a, b) => a - b),
      [1, 3, 4, 6, 7, 8, 11, 50, 51, 999],
    );
  },
);

test("runHanded: a call whose configuration names another coild is not begun", TIMEOUT, async () => {
  const { events, ...options } = optionsFor("mine.sock");
  const { signal } = new AbortController();
  const stdin = (socket?: string): string => JSON.stringify({ cniVersion: "1.0.0", name: "net", type: "coil", socket });
  const run = (path: string, config: string, command = "ADD") =>
    runHanded({ env: { ...ENV, CNI_COMMAND: command }, stdin: config, path }, options, { signal });
  for (const command of ["ADD", "DEL", "CHECK"]) {
    assert.equal(await run("/run/coild.sock.call1", stdin("/run/other.sock"), command), NOT_MINE);
    assert.equal(await run("/run/mine.sock.call1", stdin(), command), NOT_MINE);
  }
  assert.deepEqual(events, []);
  // The launcher's path decides, not the path under which this process knows its socket: they differ in a pod.
  assert.notEqual(await run("/run/coild.sock.call1", stdin()), NOT_MINE);
  assert.equal(events.length, 4);
});

test("callLocally: an aborted call has the codes of gRPC", TIMEOUT, async () => {
  const { events: _, ...options } = optionsFor("codes.sock");
  const reasons = [new DOMException("late", "TimeoutError"), new DOMException("gone", "AbortError")];
  const codes = reasons.map(async (reason) => {
    const aborting = async (given: { readonly signal: AbortSignal }): Promise<void> => given.signal.throwIfAborted();
    const done = await callLocally(options, "/x", aborting, { signal: AbortSignal.abort(reason) });
    return "status" in done ? done.status.code : undefined;
  });
  assert.deepEqual(await Promise.all(codes), [4, 1]);
});

test(
  "serveCalls: a socket whose name leaves no place for the other's is served alone, and that is logged",
  TIMEOUT,
  async () => {
    const lines: string[] = [];
    const log = createLogger({ name: "t", write: (line) => lines.push(line) });
    const health = new Health({ log });
    const { events: _, ...options } = optionsFor("x".repeat(105 - dir.length));
    await using _server = await serveCalls({ ...options, log, socketHealth, health: health.part("hand-over") });
    assert.ok(existsSync(options.socketPath));
    assert.match(lines.join(""), /too long for a hand-over socket/);
    assert.deepEqual([health.parts[0]?.status, health.unready], ["degraded", []]);
  },
);

test(
  "serveCalls: a file that is not a socket at the hand-over path stays and is named; gRPC is served, and both are once it is gone",
  TIMEOUT,
  async () => {
    const lines: string[] = [];
    const log = createLogger({ name: "t", write: (line) => lines.push(line) });
    const health = new Health({ log });
    const clock = new FakeClock();
    const { events: _, ...options } = optionsFor("file.sock");
    const path = handoverPath(options.socketPath) ?? "";
    writeFileSync(path, "precious");
    {
      await using _server = await serveCalls({
        ...options,
        clock,
        log,
        socketHealth,
        health: health.part("hand-over"),
      });
      const config = { cniVersion: "1.1.0", name: "net", type: "coil", socket: options.socketPath };
      const call = () =>
        runPlugin({ ...ENV, CNI_COMMAND: "DEL" }, Promise.resolve(JSON.stringify(config)), grpcCaller("coild"));
      assert.equal((await call()).exitCode, 0);
      const [part] = health.parts;
      assert.deepEqual([part?.status, health.unready], ["degraded", []]);
      const wanted = `cannot listen on ${path}: the path exists and is not a socket; remove the file`;
      assert.ok(part?.reason.includes(wanted), part?.reason);
      for (let tries = 0; tries < 5; tries += 1) await clock.advance(10_000);
      assert.deepEqual([lines.length, readFileSync(path, "utf8")], [1, "precious"], lines.join(""));
      rmSync(path);
      while (health.parts[0]?.status !== "ok") await clock.advance(10_000);
      assert.equal((await call()).exitCode, 0);
      assert.equal(health.parts[0].reason, path);
      assert.ok(existsSync(path));
    }
    assert.equal(existsSync(path), false);
  },
);

test(
  "serveCalls: it ends while the hand-over path is another's, and a fault of gRPC's own socket is thrown",
  TIMEOUT,
  async () => {
    const { events: _, ...options } = optionsFor("taken.sock");
    const path = handoverPath(options.socketPath) ?? "";
    await using other = createServer().listen(path);
    const health = new Health();
    const serve = () => serveCalls({ ...options, log: nullLogger, socketHealth, health: health.part("hand-over") });
    {
      await using _server = await serve();
      assert.match(health.parts[0]?.reason ?? "", /another process listens there; stop that process/);
    }
    assert.equal(existsSync(options.socketPath), false);
    assert.ok(existsSync(path) && other.listening);
    writeFileSync(options.socketPath, "");
    await assert.rejects(serve(), (error) => error instanceof SocketPathError && error.code === "not-a-socket");
  },
);

test(
  "serveCalls: a coild that lost the files of both sockets serves calls on both again within a second",
  TIMEOUT,
  async () => {
    const clock = new FakeClock();
    const health = new Health({ clock });
    const { events: _, ...options } = optionsFor("lost.sock");
    const handOver = handoverPath(options.socketPath) ?? "";
    const parts = { socketHealth: health.part("socket", { needed: "always" }), health: health.part("hand-over") };
    await using _server = await serveCalls({ ...options, ...parts, clock, log: nullLogger });
    rmSync(options.socketPath);
    rmSync(handOver);
    const startMs = clock.monotonic();
    while (!existsSync(options.socketPath) || !existsSync(handOver)) await clock.advance(100);
    assert.ok(clock.monotonic() - startMs <= 1000);
    const config = { cniVersion: "1.1.0", name: "net", type: "coil", socket: options.socketPath };
    const outcome = await runPlugin(
      { ...ENV, CNI_COMMAND: "DEL" },
      Promise.resolve(JSON.stringify(config)),
      grpcCaller("coild"),
    );
    assert.equal(outcome.exitCode, 0);
    assert.deepEqual(health.unready, []);
  },
);
