import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { after, before, type TestContext, test } from "node:test";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { markServed } from "#base/served-sockets";
import { CniFailure, type GrpcHandler, serveGrpc } from "#features/cni";
import { type CniArgs, decodeCniArgs, decodeGcArgs, encodeAddResponse, type GcArgs } from "#wire/cnirpc";
import { encodeHeaderBlock } from "#wire/http2";

const root = join(import.meta.dirname, "../../../..");
const ENV = {
  CNI_COMMAND: "ADD",
  CNI_CONTAINERID: "c1",
  CNI_NETNS: "/run/netns/none",
  CNI_IFNAME: "eth0",
  CNI_PATH: "/opt/cni/bin",
};
const RESULT = {
  cniVersion: "1.1.0",
  interfaces: [{ name: "eth0", mtu: 1450 }],
  ips: [{ address: "10.0.0.1/32", interface: 0 }],
};

/** The folder of the plugin as it ships. */
let dir = "";

before(() => {
  dir = mkdtempSync(join(tmpdir(), "isthmus-cni-"));
  const bun = join(root, "node_modules/@oven/bun-linux-x64/bin/bun");
  const args = [
    "build",
    "--compile",
    "--minify",
    "--bytecode",
    "--target=bun-linux-x64",
    join(import.meta.dirname, "program.ts"),
  ];
  execFileSync(bun, [...args, "--outfile", join(dir, "coil")], { cwd: root, stdio: ["ignore", "ignore", "inherit"] });
});
after(() => rmSync(dir, { recursive: true, force: true }));

/** Runs the executable. */
async function run(env: Record<string, string>, stdin: string | object) {
  const child = spawn(join(dir, "coil"), { env, stdio: "pipe" });
  child.stdin.on("error", () => undefined); // a plugin that does not read closes it
  child.stdin.end(typeof stdin === "string" ? stdin : JSON.stringify(stdin));
  const exit = once(child, "close");
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
  const [code] = (await exit) as [number | null];
  return { code, stdout, stderr, json: () => JSON.parse(stdout) as Record<string, unknown> };
}

/** The socket of a coild that has ended. */
const awaySocket = (): string => join(dir, "away.sock");
before(() => markServed(awaySocket(), { kind: "coild" }));

let serial = 0;
function socketPath(): string {
  serial += 1;
  const socket = join(dir, `${serial}.sock`);
  // As a coild with this socket does.
  markServed(socket, { kind: "coild" });
  return socket;
}

const config = (socket: string, more: object = {}) => ({
  cniVersion: "1.0.0",
  name: "net",
  type: "coil",
  socket,
  ...more,
});

/** A coild that answers every method alike and keeps what it was asked. */
async function coild(
  t: TestContext,
  answer: (args: CniArgs) => Uint8Array,
): Promise<{ socket: string; asked: CniArgs[]; collected: GcArgs[] }> {
  const socket = socketPath();
  const asked: CniArgs[] = [];
  const collected: GcArgs[] = [];
  const handler: GrpcHandler = async (request) => {
    asked.push(decodeCniArgs(request));
    return answer(decodeCniArgs(request));
  };
  const gc: GrpcHandler = async (request) => {
    collected.push(decodeGcArgs(request));
    return new Uint8Array(0);
  };
  const calls = ["Add", "Del", "Check", "Status"].map((name) => [`/pkg.cnirpc.CNI/${name}`, handler]);
  const handlers = { ...Object.fromEntries(calls), "/pkg.cnirpc.CNI/GC": gc };
  const server = await serveGrpc({
    socketPath: socket,
    handlers,
    onBug: (error) => assert.fail(String(error)),
    clock: systemClock,
  });
  t.after(() => server[Symbol.asyncDispose]());
  return { socket, asked, collected };
}

/** A server that says `bytes` to whoever connects, and closes behind them or waits. */
async function scripted(t: TestContext, bytes: Uint8Array, close: boolean): Promise<string> {
  const socket = socketPath();
  const server = createServer((peer) => {
    peer.on("error", () => undefined);
    peer.resume();
    if (close) peer.end(bytes);
    else peer.write(bytes);
  });
  server.listen(socket);
  await once(server, "listening");
  t.after(() => server.close());
  return socket;
}

const result = (value: object): Uint8Array => encodeAddResponse(new TextEncoder().encode(JSON.stringify(value)));

test("coil: VERSION works with empty stdin and says nothing else", async () => {
  const supportedVersions = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];
  const { code, stdout, stderr } = await run({ CNI_COMMAND: "VERSION" }, "");
  assert.deepEqual([code, JSON.parse(stdout), stderr], [0, { cniVersion: "1.1.0", supportedVersions }, ""]);
  const asked = await run({ CNI_COMMAND: "VERSION" }, { cniVersion: "0.4.0" });
  assert.deepEqual(asked.json(), { cniVersion: "0.4.0", supportedVersions });
});

test("coil: without CNI_COMMAND it prints its purpose on stderr", async () => {
  const { code, stdout, stderr } = await run({}, "");
  assert.deepEqual([code, stdout], [1, ""]);
  assert.match(stderr, /CNI plugin coil.*"1\.1\.0"/);
});

test("coil: ADD hands everything to coild and answers in the requested version", async (t) => {
  const { socket, asked } = await coild(t, () => result(RESULT));
  const stdin = JSON.stringify(config(socket));
  const { code, stderr, json } = await run({ ...ENV, CNI_ARGS: "IgnoreUnknown=1;K8S_POD_NAME=p;X=1" }, stdin);
  assert.deepEqual([code, stderr], [0, ""]);
  assert.deepEqual(json(), { cniVersion: "1.0.0", interfaces: [{ name: "eth0" }], ips: RESULT.ips, dns: {} });
  const [args] = asked;
  assert.ok(args !== undefined);
  assert.deepEqual(
    { ...args, stdinData: Buffer.from(args.stdinData).toString() },
    {
      containerId: "c1",
      netns: "/run/netns/none",
      ifname: "eth0",
      args: { IgnoreUnknown: "1", K8S_POD_NAME: "p", X: "1", IS_CHAINED: "false" },
      path: "/opt/cni/bin",
      stdinData: stdin,
      ips: [],
      interfaces: {},
    },
  );
  for (const cniVersion of ["0.3.1", "0.4.0", "1.1.0"]) {
    assert.equal((await run(ENV, config(socket, { cniVersion }))).json()["cniVersion"], cniVersion);
  }
});

test("coil: a chained call gives coild the previous result, and DEL and CHECK print nothing", async (t) => {
  const { socket, asked } = await coild(t, () => new Uint8Array(0));
  const prevResult = {
    interfaces: [{ name: "veth1" }, { name: "eth0", sandbox: "/x" }],
    ips: [{ address: "10.0.0.1/24" }],
  };
  for (const CNI_COMMAND of ["DEL", "CHECK"]) {
    const { code, stdout, stderr } = await run({ ...ENV, CNI_COMMAND }, config(socket, { prevResult }));
    assert.deepEqual([code, stdout, stderr], [0, "", ""], CNI_COMMAND);
  }
  assert.deepEqual(
    asked.map(({ args, ips, interfaces }) => [args["IS_CHAINED"], ips, interfaces]),
    [
      ["true", ["10.0.0.1"], { veth1: false, eth0: true }],
      ["true", ["10.0.0.1"], { veth1: false, eth0: true }],
    ],
  );
  const old = await run({ ...ENV, CNI_COMMAND: "CHECK" }, config(socket, { cniVersion: "0.3.1" }));
  assert.deepEqual([old.code, old.json()["code"]], [1, 1]);
});

test("coil: ADD behind another plugin prints prevResult as it came, unknown fields included; one of another version is converted to the exact shape", async (t) => {
  const { socket } = await coild(t, () => result(RESULT));
  const interfaces = [{ name: "eth0", mac: "02:00:00:00:00:01", sandbox: "/x" }];
  const ips = [{ address: "10.0.0.1/24", gateway: "10.0.0.254", interface: 0 }];
  const routes = [{ dst: "0.0.0.0/0", gw: "10.0.0.254" }];
  const shapes: Record<string, object> = {
    "0.3.1": { interfaces, ips: [{ version: "4", ...ips[0] }], routes, dns: {} },
    "0.4.0": { interfaces, ips: [{ version: "4", ...ips[0] }], routes, dns: {} },
    "1.0.0": { interfaces, ips, routes, dns: {} },
    "1.1.0": { interfaces: [{ ...interfaces[0], mtu: 1400 }], ips, routes: [{ ...routes[0], mtu: 1300 }], dns: {} },
  };
  const newest = { cniVersion: "1.1.0", ...shapes["1.1.0"], extra: 1 };
  for (const [cniVersion, shape] of Object.entries(shapes)) {
    const same = { cniVersion, ...shape, "vendor.example/extra": { a: 1 } };
    assert.deepEqual((await run(ENV, config(socket, { cniVersion, prevResult: same }))).json(), same);
    if (cniVersion === "1.1.0") continue;
    const converted = await run(ENV, config(socket, { cniVersion, prevResult: newest }));
    assert.deepEqual(converted.json(), { cniVersion, ...shape });
  }
});

test("coil: every version that VERSION names answers every command that the version has", async (t) => {
  const { socket } = await coild(t, () => result(RESULT));
  const { supportedVersions } = (await run({ CNI_COMMAND: "VERSION" }, "")).json();
  assert.ok(Array.isArray(supportedVersions) && supportedVersions.length > 0);
  const since = { ADD: "0.1.0", DEL: "0.1.0", CHECK: "0.4.0", GC: "1.1.0", STATUS: "1.1.0" };
  for (const cniVersion of supportedVersions as string[]) {
    for (const [CNI_COMMAND, first] of Object.entries(since)) {
      const env = CNI_COMMAND === "GC" || CNI_COMMAND === "STATUS" ? { CNI_COMMAND } : { ...ENV, CNI_COMMAND };
      const given = config(socket, { cniVersion, "cni.dev/valid-attachments": [] });
      const { code, stdout, json } = await run(env, given);
      if (cniVersion >= first) {
        assert.deepEqual([code, CNI_COMMAND === "ADD" || stdout === ""], [0, true], `${cniVersion} ${CNI_COMMAND}`);
        continue;
      }
      const msg = `config version does not allow ${CNI_COMMAND}: it needs cniVersion ${first} or later, not ${cniVersion}`;
      assert.deepEqual([code, json()], [1, { cniVersion, code: 1, msg }]);
    }
  }
});

test("coil: STATUS is coild's word; where coild is away no ADD can be served, which is 50", async (t) => {
  const limited = new CniFailure("limited-connectivity", "2 attachments are cut off");
  const { socket } = await coild(t, () => {
    throw limited;
  });
  for (const [at, expected] of [
    [socket, 51],
    [awaySocket(), 50],
  ] as const) {
    const { code, json, stderr } = await run({ CNI_COMMAND: "STATUS" }, config(at, { cniVersion: "1.1.0" }));
    assert.deepEqual([code, json()["code"], stderr], [1, expected, ""]);
  }
});

test("coil: GC hands the network's name and the valid attachments to coild, and refuses to guess them", async (t) => {
  const { socket, collected } = await coild(t, () => new Uint8Array(0));
  const env = { CNI_COMMAND: "GC", CNI_PATH: "/opt/cni/bin" };
  const valid = [{ containerID: "c1", ifname: "eth0" }];
  const given = config(socket, { cniVersion: "1.1.0", "cni.dev/valid-attachments": valid });
  assert.deepEqual((await run(env, given)).code, 0);
  assert.deepEqual(collected, [{ network: "net", attachments: [{ containerId: "c1", ifname: "eth0" }] }]);
  for (const wrong of [undefined, {}, [1], [{ containerID: "c1" }], [null]]) {
    const { code, json } = await run(env, config(socket, { cniVersion: "1.1.0", "cni.dev/valid-attachments": wrong }));
    assert.deepEqual([code, json()["code"]], [1, 7], JSON.stringify(wrong));
    assert.match(String(json()["msg"]), /cni\.dev\/valid-attachments/);
  }
  assert.equal(collected.length, 1);
  const away = config(awaySocket(), { cniVersion: "1.1.0", "cni.dev/valid-attachments": valid });
  assert.equal((await run(env, away)).json()["code"], 11);
});

test("coil: a socket of the configuration that no coild of this node serves is 7 and is not connected to; the DEL then asks the node's own", async (t) => {
  const socket = join(dir, "stranger.sock");
  let connections = 0;
  const server = createServer(() => {
    connections += 1;
  }).listen(socket);
  await once(server, "listening");
  t.after(() => server.close());
  for (const CNI_COMMAND of ["ADD", "CHECK"]) {
    const { code, json } = await run({ ...ENV, CNI_COMMAND }, config(socket));
    assert.deepEqual([code, json()["code"]], [1, 7]);
    assert.match(
      String(json()["msg"]),
      /^network configuration: socket: .*stranger\.sock" is of no coild of this node/,
    );
  }
  await run({ ...ENV, CNI_COMMAND: "DEL", CNI_NETNS: join(dir, "gone") }, config(socket));
  assert.equal(connections, 0);
});

test("coil: a namespace that is the plugin's own is 8, ADD and CHECK before anything is done", async (t) => {
  const { socket, asked } = await coild(t, () => result(RESULT));
  const alias = `${socket}.netns`;
  symlinkSync("/proc/self/ns/net", alias);
  for (const CNI_NETNS of ["/proc/self/ns/net", `/proc/${process.pid}/ns/net`, alias]) {
    for (const CNI_COMMAND of ["ADD", "CHECK"]) {
      const { code, stderr, json } = await run({ ...ENV, CNI_COMMAND, CNI_NETNS }, config(socket));
      assert.deepEqual([code, stderr, json()["code"]], [1, "", 8]);
      assert.equal(json()["msg"], "plugin's netns and netns from CNI_NETNS should not be the same");
      assert.match(String(json()["details"]), /CNI_NETNS_OVERRIDE=1 allows it/);
    }
  }
  assert.equal(asked.length, 0);
});

test("coil: DEL of the plugin's own namespace frees the attachment, and still fails with 8", async (t) => {
  const { socket, asked } = await coild(t, () => new Uint8Array(0));
  const env = { ...ENV, CNI_COMMAND: "DEL", CNI_NETNS: "/proc/self/ns/net" };
  const { code, json } = await run(env, config(socket));
  assert.deepEqual([code, json()["code"], asked.length], [1, 8, 1]);
});

test("coil: CNI_NETNS_OVERRIDE allows the plugin's own namespace", async (t) => {
  const { socket } = await coild(t, () => result(RESULT));
  const env = { ...ENV, CNI_NETNS: "/proc/self/ns/net" };
  for (const CNI_NETNS_OVERRIDE of ["1", "true", "TRUE"]) {
    for (const CNI_COMMAND of ["ADD", "CHECK", "DEL"]) {
      const { code, stdout } = await run({ ...env, CNI_COMMAND, CNI_NETNS_OVERRIDE }, config(socket));
      assert.equal(code, 0, stdout);
    }
  }
  for (const CNI_NETNS_OVERRIDE of ["0", "yes", ""]) {
    assert.equal((await run({ ...env, CNI_NETNS_OVERRIDE }, config(socket))).json()["code"], 8);
  }
});

test("coil: a large configuration arrives whole", async (t) => {
  const { socket, asked } = await coild(t, () => result(RESULT));
  const padding = "x".repeat(300_000);
  assert.equal((await run(ENV, config(socket, { padding }))).code, 0);
  assert.ok((asked[0]?.stdinData.length ?? 0) > 300_000);
});

test("coil: errors are one JSON object on stdout with exit code 1 and an empty stderr", async (t) => {
  const { socket } = await coild(t, () => {
    throw new CniFailure("try-again", "pool default has no free block", { cause: new Error("exhausted") });
  });
  const cases: [Record<string, string>, string | object, Record<string, unknown>][] = [
    [
      { CNI_COMMAND: "ADD" },
      config(socket),
      { cniVersion: "1.0.0", code: 4, msg: "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME] missing" },
    ],
    [{ ...ENV, CNI_COMMAND: "FOO" }, config(socket), { cniVersion: "1.0.0", code: 4, msg: "unknown CNI_COMMAND: FOO" }],
    [ENV, "{", { cniVersion: "1.1.0", code: 6, msg: "cannot decode the network configuration: it is not JSON" }],
    [
      ENV,
      config(socket),
      { cniVersion: "1.0.0", code: 11, msg: "pool default has no free block", details: "exhausted" },
    ],
  ];
  for (const [env, stdin, expected] of cases) {
    const { code, stderr, json } = await run(env, stdin);
    assert.deepEqual([code, json(), stderr], [1, expected, ""]);
  }
});

test("coil: coild away is 11, for DEL too while the namespace is there", async () => {
  for (const CNI_COMMAND of ["ADD", "CHECK", "DEL"]) {
    const { code, json } = await run({ ...ENV, CNI_COMMAND, CNI_NETNS: dir }, config(awaySocket()));
    assert.deepEqual([code, json()["code"]], [1, 11], CNI_COMMAND);
    assert.match(String(json()["msg"]), /cannot reach coild at .*away\.sock/);
  }
});

test("coil: DEL with coild away succeeds when namespace and link are gone", async () => {
  for (const CNI_NETNS of ["", join(dir, "gone")]) {
    const { code, stdout } = await run({ ...ENV, CNI_COMMAND: "DEL", CNI_NETNS }, config(awaySocket()));
    assert.deepEqual([code, stdout], [0, ""]);
  }
});

function frame(type: number, flags: number, stream: number, payload: Uint8Array): Buffer {
  return Buffer.concat([
    Buffer.from([0, payload.length >> 8, payload.length & 255, type, flags, 0, 0, 0, stream]),
    payload,
  ]);
}
const settings = frame(4, 0, 0, new Uint8Array(0));
const answer = (...headers: [string, string][]): Buffer =>
  Buffer.concat([settings, frame(1, 5, 1, encodeHeaderBlock(headers))]);

test("coil: answers that mean nothing are 999 and never a crash", async (t) => {
  const noJson = Buffer.concat([Buffer.from([0, 0, 0, 0, 5, 0x0a, 3]), Buffer.from("{]}")]);
  const script = {
    "another protocol": Buffer.from("HTTP/1.1 400 Bad Request\r\n\r\n"),
    "no gRPC status": answer([":status", "502"]),
    "a status that is no number": answer([":status", "200"], ["grpc-status", "x"]),
    "success without a message": answer([":status", "200"], ["grpc-status", "0"]),
    "an error without details": answer([":status", "200"], ["grpc-status", "13"], ["grpc-message", "no%20luck"]),
    "details that are no base64": answer([":status", "200"], ["grpc-status", "13"], ["grpc-status-details-bin", "!"]),
    "a reset": Buffer.concat([settings, frame(3, 0, 1, new Uint8Array([0, 0, 0, 2]))]),
    "headers that cannot be decoded": Buffer.concat([settings, frame(1, 5, 1, Buffer.from("ffffffff", "hex"))]),
    "a result that is not JSON": Buffer.concat([
      settings,
      frame(1, 4, 1, encodeHeaderBlock([[":status", "200"]])),
      frame(0, 0, 1, noJson),
      frame(1, 5, 1, encodeHeaderBlock([["grpc-status", "0"]])),
    ]),
  };
  for (const [what, bytes] of Object.entries(script)) {
    const { code, stderr, json } = await run(ENV, config(await scripted(t, bytes, false)));
    assert.deepEqual([code, json()["code"], stderr], [1, 999, ""], what);
  }
});

test("coil: a coild that hangs up without an answer, or is unavailable, is 11", async (t) => {
  for (const bytes of [new Uint8Array(0), settings, answer([":status", "200"], ["grpc-status", "14"])]) {
    const { code, json } = await run(ENV, config(await scripted(t, bytes, true)));
    assert.deepEqual([code, json()["code"]], [1, 11]);
  }
});

test("coil: random answers end in one CNI error", async (t) => {
  const bytes = fc.oneof(
    fc.uint8Array({ maxLength: 80 }),
    fc.uint8Array({ maxLength: 80 }).map((payload) => Buffer.concat([settings, frame(1, 5, 1, payload)])),
  );
  await fc.assert(
    fc.asyncProperty(bytes, async (one) => {
      const { code, json, stderr } = await run(ENV, config(await scripted(t, one, true)));
      assert.equal(code, 1);
      assert.ok([11, 999].includes(Number(json()["code"])), JSON.stringify(json()));
      assert.equal(stderr, "");
    }),
    { numRuns: 40 },
  );
});
