import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import fc from "fast-check";
import { systemClock } from "#base/clock";
import { countFlows, OpenFlowError, type OpenFlowErrorCode } from "./index.ts";
import { decodeCount, decodeMessage, encodeCountRequest, encodeMessage, TYPE } from "./messages.ts";

const folder = mkdtempSync(join(tmpdir(), "isthmus-openflow-"));
after(() => rmSync(folder, { recursive: true }));
let serial = 0;

/** A switch that does with each connection what the test says. */
async function served(t: { after(work: () => void): void }, onConnection: (socket: Socket) => void): Promise<string> {
  serial += 1;
  const path = join(folder, `${serial}.mgmt`);
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

/** The answer of ovs-vswitchd 3.1 to {@link encodeCountRequest}: of a bridge with three flows. */
const THREE = Buffer.from(
  "04130028000000020002000000000000" + "0000000000000000" + "0000000000000000" + "0000000300000000",
  "hex",
);

const withCode =
  (code: OpenFlowErrorCode) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof OpenFlowError, String(error));
    assert.equal(error.code, code, error.message);
    return true;
  };

test("encodeCountRequest: the bytes of ovs-ofctl -O OpenFlow13 dump-aggregate", () => {
  assert.equal(
    encodeCountRequest(2).toString("hex"),
    "0412003800000002" +
      "0002000000000000" +
      "ff000000ffffffffffffffff00000000" +
      "00000000000000000000000000000000" +
      "0001000400000000",
  );
});

test("decodeMessage, decodeCount: the number of flows; of any bytes only our error escapes", () => {
  const { message, length } = decodeMessage(THREE) ?? assert.fail();
  assert.deepEqual([decodeCount(message), length], [3, THREE.length]);
  assert.equal(decodeMessage(THREE.subarray(0, 30)), undefined);
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => {
      try {
        const found = decodeMessage(Buffer.from(bytes));
        if (found !== undefined) decodeCount(found.message);
      } catch (error) {
        assert.ok(error instanceof OpenFlowError);
      }
    }),
  );
});

test("countFlows: the hello is awaited, an echo answered, and the count found wherever chunks end", async (t) => {
  const hello = encodeMessage({ type: TYPE.hello, xid: 9 });
  const echo = encodeMessage({ type: TYPE.echoRequest, xid: 7, body: Buffer.from("x") });
  const got: Buffer[] = [];
  const path = await served(t, (socket) => {
    socket.on("data", (chunk: Buffer) => {
      got.push(chunk);
      const all = Buffer.concat(got);
      if (all.length === hello.length) socket.write(Buffer.concat([hello, echo]));
      else if (all.includes(encodeCountRequest(2)) && all.at(-1) !== 0xff) {
        socket.write(THREE.subarray(0, 13));
        setImmediate(() => socket.write(THREE.subarray(13)));
      }
    });
  });
  assert.equal(await countFlows({ clock: systemClock }, path), 3);
  assert.ok(Buffer.concat(got).includes(encodeMessage({ type: TYPE.echoReply, xid: 7, body: Buffer.from("x") })));
});

test("countFlows: nobody listens, a switch that is silent, closes, refuses or answers something else", async (t) => {
  const clock = systemClock;
  await assert.rejects(countFlows({ clock }, join(folder, "none.mgmt")), withCode("unreachable"));
  const silent = await served(t, () => undefined);
  await assert.rejects(countFlows({ clock }, silent, { timeoutMs: 20 }), withCode("timeout"));
  const signal = AbortSignal.timeout(20);
  await assert.rejects(countFlows({ clock }, silent, { signal }), { name: "TimeoutError" });
  const closing = await served(t, (socket) => socket.end());
  await assert.rejects(countFlows({ clock }, closing), withCode("closed"));
  const error = encodeMessage({ type: TYPE.error, xid: 1, body: Buffer.from([0, 0, 0, 0]) });
  const other = await served(t, (socket) => socket.write(error));
  await assert.rejects(countFlows({ clock }, other), withCode("refused"));
  const wrong = await served(t, (socket) => socket.write(Buffer.from("HTTP/1.1 400 Bad Request\r\n")));
  await assert.rejects(countFlows({ clock }, wrong, { timeoutMs: 1000 }), OpenFlowError);
  const short = await served(t, (socket) => socket.write(Buffer.from("0400000200000000", "hex")));
  await assert.rejects(countFlows({ clock }, short), withCode("malformed"));
});
