import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { NumberedSide } from "./upgrade-traffic.ts";

/** A side, and the socket at its other end. */
async function pair(t: TestContext): Promise<{ side: NumberedSide; other: Socket }> {
  const server = createServer();
  await once(server.listen(0, "127.0.0.1"), "listening");
  t.after(() => server.close());
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const socket = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const [[other]] = await Promise.all([accepted, once(socket, "connect")]);
  other.on("error", () => undefined);
  const side = new NumberedSide(socket);
  t.after(() => {
    side[Symbol.dispose]();
    other.destroy();
  });
  return { side, other };
}

test("NumberedSide: it sends numbers from 0 on, and takes those of the other side in whatever pieces they come", async (t) => {
  const { side, other } = await pair(t);
  const [bytes] = (await once(other, "data")) as [Buffer];
  assert.equal(bytes.readUInt32BE(0), 0);
  other.write(Buffer.from([0, 0]));
  other.write(Buffer.from([0, 0, 0, 0, 0, 1, 0]));
  await side.first;
  other.write(Buffer.from([0, 0, 2]));
  while (side.received < 3) await once(other, "data");
  assert.equal(side.fault, undefined);
});

test("NumberedSide: a number that is missing ends the connection, and is named", async (t) => {
  const { side, other } = await pair(t);
  const ended = once(other, "close");
  other.resume().write(Buffer.from([0, 0, 0, 1]));
  await ended;
  assert.equal(side.fault, "number 1 came in place of 0");
  await assert.rejects(side.first, { code: "failed", message: /number 1/ });
});

test("NumberedSide: an end of the other side is a fault", async (t) => {
  const { side, other } = await pair(t);
  const closed = once(other, "close");
  other.resume().end();
  await closed;
  await assert.rejects(side.first, { code: "failed" });
  assert.match(side.fault ?? "", /ended|closed/);
});
