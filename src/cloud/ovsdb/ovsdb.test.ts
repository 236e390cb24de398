import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import fc from "fast-check";
import { FakeClock, systemClock } from "#base/clock";
import { character } from "#test/characters";
import { OvsdbConnection, resultsOf } from "./connection.ts";
import { isOvsdbError, OpenVSwitch, OvsdbError } from "./index.ts";
import { JsonStream, MAX_DEPTH } from "./json-stream.ts";
import { addOperations } from "./open-vswitch.ts";
import { optional, textMap, textOf, uuidOf, uuids } from "./values.ts";

const folder = mkdtempSync(join(tmpdir(), "isthmus-ovsdb-"));
after(() => rmSync(folder, { recursive: true }));
let serial = 0;

/** A server that does with each connection what the test says. */
async function served(t: { after(work: () => void): void }, onConnection: (socket: Socket) => void): Promise<string> {
  serial += 1;
  const path = join(folder, `${serial}.sock`);
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket.on("error", () => undefined));
    onConnection(socket);
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return path;
}

test("JsonStream: objects are found wherever chunks end", () => {
  const objects = fc.array(fc.dictionary(fc.string({ unit: character }), fc.jsonValue({ maxDepth: 3 })), {
    maxLength: 5,
  });
  fc.assert(
    fc.property(objects, fc.integer({ min: 1, max: 7 }), (list, step) => {
      const bytes = Buffer.from(list.map((one) => JSON.stringify(one)).join(" \n"));
      const stream = new JsonStream();
      const found: object[] = [];
      for (let at = 0; at < bytes.length; at += step) found.push(...stream.push(bytes.subarray(at, at + step)));
      assert.equal(JSON.stringify(found), JSON.stringify(list));
    }),
  );
});

test("JsonStream: of any bytes only our error escapes, and none is kept beyond the bound", () => {
  const piece = fc.oneof(
    fc.uint8Array({ maxLength: 40 }),
    fc.constantFrom("{", "}", "[", '"', "\\", '{"a":[', "]}").map((text) => Buffer.from(text)),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 20 }), (pieces) => {
      const stream = new JsonStream({ maxBytes: 100 });
      try {
        for (const one of pieces) stream.push(one);
      } catch (error) {
        assert.ok(isOvsdbError(error, "malformed"), String(error));
      }
    }),
    { numRuns: 2000 },
  );
  assert.throws(() => new JsonStream({ maxBytes: 10 }).push(Buffer.from('{"a":"12345678"}')), { code: "malformed" });
  assert.throws(() => new JsonStream().push(Buffer.from(`{"a":${"[".repeat(MAX_DEPTH)}`)), { code: "malformed" });
});

test("answers of any form are results, a refusal, or our error", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      for (const read of [
        () => resultsOf(value, 1),
        () => uuids(value),
        () => textMap(value),
        () => uuidOf({ _uuid: value }),
        () => textOf({ a: value }, "a"),
        () => optional({ a: value }, "a"),
      ]) {
        try {
          read();
        } catch (error) {
          assert.ok(error instanceof OvsdbError, String(error));
        }
      }
    }),
  );
  assert.deepEqual(resultsOf([{ count: 1 }, { error: "timed out", details: "d" }, null], 3), {
    operation: 1,
    error: "timed out",
    details: "d",
  });
  assert.deepEqual(resultsOf([{}, { error: "constraint violation" }], 1), {
    operation: undefined,
    error: "constraint violation",
    details: "",
  });
});

test("a port is one transaction: the bridge is there, the name is free, ids come with the interface, next_cfg goes up", () => {
  const operations = addOperations({ bridge: "br-int", device: "tap1", externalIds: { "iface-id": "p1" } });
  assert.deepEqual(
    operations.map(({ op, table }) => `${op} ${table}`),
    [
      "wait Bridge",
      "wait Port",
      "insert Interface",
      "insert Port",
      "mutate Bridge",
      "mutate Open_vSwitch",
      "select Open_vSwitch",
    ],
  );
  assert.deepEqual(operations[2]?.["row"], { name: "tap1", external_ids: ["map", [["iface-id", "p1"]]] });
  assert.ok(!JSON.stringify(operations).includes('"tag"'));
});

test("echo of the server is answered, in the middle of a call too", async (t) => {
  const echoed = Promise.withResolvers<string>();
  const path = await served(t, (socket) => {
    socket.write('{"id":"e1","method":"echo","params":[7]}');
    socket.on("data", (data) => {
      const text = data.toString();
      const echo = /\{"id":"e1"[^}]*\}/.exec(text)?.[0];
      if (echo !== undefined) echoed.resolve(echo);
      if (text.includes('"transact"')) socket.write('{"id":1,"result":[{"rows":[]}],"error":null}');
    });
  });
  await using connection = await OvsdbConnection.open({ clock: systemClock }, path);
  assert.deepEqual(await connection.transact([{ op: "select" }], { timeoutMs: 5000 }), [{ rows: [], count: 0 }]);
  assert.equal(await echoed.promise, '{"id":"e1","result":[7],"error":null}');
});

test("a server that hangs up, is silent, or speaks no JSON has its own code", async (t) => {
  const deps = { clock: systemClock };
  await assert.rejects(OvsdbConnection.open(deps, join(folder, "none.sock")), { code: "unreachable" });
  const hangsUp = await served(t, (socket) => socket.end());
  await assert.rejects(new OpenVSwitch(deps, { socketPath: hangsUp }).ports(), { code: "closed" });
  const another = await served(t, (socket) => socket.write("HTTP/1.1 400 Bad Request\r\n"));
  await assert.rejects(new OpenVSwitch(deps, { socketPath: another }).ports(), { code: "malformed" });
  const refuses = await served(t, (socket) =>
    socket.on("data", () => socket.write('{"id":1,"result":null,"error":"unknown database"}')),
  );
  await assert.rejects(new OpenVSwitch(deps, { socketPath: refuses }).ports(), {
    code: "refused",
    message: /unknown database/,
  });
  const asked = Promise.withResolvers<void>();
  const silent = await served(t, (socket) => socket.on("data", () => asked.resolve()));
  const clock = new FakeClock();
  const waiting = assert.rejects(new OpenVSwitch({ clock }, { socketPath: silent, timeoutMs: 3000 }).ports(), {
    code: "timeout",
  });
  await asked.promise;
  clock.advance(3000);
  await waiting;
});
