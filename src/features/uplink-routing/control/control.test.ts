import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { UNTESTED, type Uplink, type UplinkStatus } from "#base/uplink-model";
import { parseStatus, StatusError, serveControl } from "./index.ts";

const UPLINK: Uplink = {
  name: "lan0",
  ifName: "eth0",
  cost: 4,
  isManagement: true,
  isL3: true,
  isValid: true,
  isUp: true,
  weight: 1,
  addresses: [{ address: IpAddress.parse("192.0.2.10"), prefixLength: 24, isUsable: true }],
  gateway4: IpAddress.parse("192.0.2.1"),
  dnsServers: [IpAddress.parse("192.0.2.53")],
  searchDomains: [],
  status: { lastFailed: 1000, lastError: "link down", lastWarning: "" },
  table: 502,
};

async function setUp(t: TestContext) {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-control-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "run", "control.sock");
  const reported: [string, UplinkStatus][] = [];
  const deps = {
    uplinks: () => [UPLINK],
    reportStatus: (uplink: string, status: UplinkStatus): boolean => {
      if (uplink === UPLINK.name) reported.push([uplink, status]);
      return uplink === UPLINK.name;
    },
    log: nullLogger,
  };
  const control = await serveControl(deps, { path });
  t.after(() => control[Symbol.asyncDispose]());
  const ask = async (
    method: string,
    url: string,
    body?: string,
  ): Promise<{ status: number; body: string; headers: Record<string, unknown> }> => {
    const sent = request({ socketPath: path, method, path: url, agent: false });
    sent.end(body);
    const [response] = await once(sent, "response");
    return { status: response.statusCode, body: await text(response), headers: response.headers };
  };
  return { path, reported, ask, deps, control };
}

test("serveControl: lists uplinks as the configuration names them, and takes a report of one", async (t) => {
  const { ask, reported, path } = await setUp(t);
  assert.equal(statSync(path).mode & 0o777, 0o600);
  const list = await ask("GET", "/v1/uplinks");
  assert.equal(list.status, 200);
  assert.deepEqual(JSON.parse(list.body), {
    uplinks: [
      {
        name: "lan0",
        interface: "eth0",
        cost: 4,
        management: true,
        up: true,
        addresses: [{ address: "192.0.2.10/24", usable: true }],
        gateway4: "192.0.2.1",
        gateway6: null,
        dnsServers: ["192.0.2.53"],
        table: 502,
        lastProbe: null,
        status: {
          lastFailed: "1970-01-01T00:00:01.000Z",
          lastSucceeded: null,
          lastError: "link down",
          lastWarning: "",
        },
      },
    ],
  });
  const failure = {
    lastFailed: "2026-06-01T10:00:00Z",
    lastSucceeded: null,
    lastError: "no answer",
    lastWarning: "slow",
  };
  const answer = await ask("PUT", "/v1/uplinks/lan0/status", JSON.stringify(failure));
  assert.deepEqual([answer.status, answer.body], [204, ""]);
  assert.deepEqual(reported, [
    ["lan0", { lastFailed: Date.UTC(2026, 5, 1, 10), lastError: "no answer", lastWarning: "slow" }],
  ]);
});

test("serveControl: other requests are refused with the reason, and nothing is reported", async (t) => {
  const { ask, reported } = await setUp(t);
  const good = JSON.stringify({ lastError: "" });
  for (const [method, url, body, status] of [
    ["PUT", "/v1/uplinks/other/status", good, 404],
    ["PUT", "/v1/uplinks/lan0", good, 404],
    ["PUT", "/v1/uplinks/lan0/status?x=1", good, 404],
    ["PUT", "/v1/uplinks/../lan0/status", good, 404],
    ["GET", "/", undefined, 404],
    ["GET", "/v1/uplinks/lan0/status", undefined, 405],
    ["POST", "/v1/uplinks/lan0/status", good, 405],
    ["DELETE", "/v1/uplinks", undefined, 405],
    ["PUT", "/v1/uplinks/lan0/status", "{", 400],
    ["PUT", "/v1/uplinks/lan0/status", "[]", 400],
    ["PUT", "/v1/uplinks/lan0/status", '{"lastfailed":null}', 400],
    ["PUT", "/v1/uplinks/lan0/status", '{"lastFailed":5,"lastError":""}', 400],
    ["PUT", "/v1/uplinks/lan0/status", '{"lastFailed":"yesterday","lastError":"x"}', 400],
    ["PUT", "/v1/uplinks/lan0/status", `{"lastError":"${"x".repeat(2000)}"}`, 400],
    ["PUT", "/v1/uplinks/lan0/status", `{"lastError":"${"x".repeat(20_000)}"}`, 413],
  ] as const) {
    const answer = await ask(method, url, body);
    assert.equal(answer.status, status, `${method} ${url} ${body?.slice(0, 40)}`);
    assert.match(JSON.parse(answer.body).error, /\w/);
    if (status === 405) assert.ok(answer.headers["allow"]);
  }
  assert.deepEqual(reported, []);
});

test("serveControl: bytes that are no HTTP, and half requests, do not keep others from being served", async (t) => {
  const { ask, path } = await setUp(t);
  const odd = ["\0\0\0", "GET", "PUT /v1/uplinks/lan0/status HTTP/1.1\r\ncontent-length: 100\r\n\r\n{"].map((bytes) => {
    const socket = connect(path);
    socket.on("error", () => socket.destroy());
    socket.write(bytes);
    return socket;
  });
  assert.equal((await ask("GET", "/v1/uplinks")).status, 200);
  for (const socket of odd) socket.destroy();
});

test("serveControl: whoever holds all places without a request keeps nobody out, and one whose report is under way keeps its place", async (t) => {
  const { ask, path, reported } = await setUp(t);
  const come = async (bytes: string) => {
    const socket = connect(path);
    socket.on("error", () => socket.destroy()).resume();
    t.after(() => socket.destroy());
    await once(socket, "connect");
    socket.write(bytes);
    return socket;
  };
  const begun = request({ socketPath: path, method: "PUT", path: "/v1/uplinks/lan0/status", agent: false });
  begun.flushHeaders();
  await once(begun, "socket");
  // The request is under way when a later one of another client is answered.
  assert.equal((await ask("GET", "/v1/uplinks")).status, 200);
  const held = await Promise.all(Array.from({ length: 100 }, () => come("GET /v1/upl")));
  assert.equal((await ask("GET", "/v1/uplinks")).status, 200);
  assert.ok(held.some(({ destroyed }) => !destroyed));
  begun.end(JSON.stringify({ lastError: "", lastWarning: "" }));
  const [{ statusCode }] = await once(begun, "response");
  assert.deepEqual([statusCode, reported.length], [204, 1]);
});

test("serveControl: a socket that a killed process left is replaced, one that is served is not, and none is left at the end", async (t) => {
  const { path, deps, control } = await setUp(t);
  await assert.rejects(serveControl(deps, { path }), { name: "SocketPathError", code: "in-use" });
  await control[Symbol.asyncDispose]();
  assert.equal(statSync(path, { throwIfNoEntry: false }), undefined);
  const abandoned = createServer().listen(path);
  await once(abandoned, "listening");
  // Closing would remove the file; a killed process leaves it.
  writeFileSync(`${path}.keep`, "");
  await assert.rejects(serveControl(deps, { path: `${path}.keep` }), { code: "not-a-socket" });
  await assert.rejects(serveControl(deps, { path: `${path}.keep/control.sock` }), { name: "SocketPathError" });
  abandoned.close();
});

test("parseStatus: only a status comes out, or our error (fuzz)", () => {
  const check = (source: string): void => {
    try {
      const status = parseStatus(source);
      assert.ok(typeof status.lastError === "string");
      for (const at of [status.lastFailed, status.lastSucceeded])
        assert.ok(at === undefined || !Number.isNaN(new Date(at).getTime()));
    } catch (error) {
      if (!(error instanceof StatusError)) throw error;
    }
  };
  const value = fc.oneof(
    fc.jsonValue(),
    fc.date().map((date) => (Number.isNaN(date.getTime()) ? null : date.toISOString())),
    fc.integer(),
  );
  fc.assert(fc.property(fc.string(), check));
  fc.assert(
    fc.property(
      fc.record(
        { lastFailed: value, lastSucceeded: value, lastError: value, lastWarning: value },
        { requiredKeys: [] },
      ),
      (status) => check(JSON.stringify(status)),
    ),
  );
  assert.deepEqual(parseStatus("{}"), UNTESTED);
});
