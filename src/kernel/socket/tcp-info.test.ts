import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { connectTcp } from "#kernel/reactor";
import { decodeTcpInfo, tcpInfo } from "./index.ts";

test("tcpInfo: the kernel counts what was acknowledged and what came", { timeout: 10_000 }, async (t) => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const { port } = server.address() as AddressInfo;
  const stream = await connectTcp({ address: IpAddress.parse("127.0.0.1"), port });
  const [peer] = await accepted;
  t.after(() => {
    stream.destroy();
    peer.destroy();
    server.close();
  });
  const before = tcpInfo(stream.fd);
  stream.write(Buffer.alloc(1000));
  let received = 0;
  while (received < 1000) received += ((await once(peer, "data")) as [Buffer])[0].length;
  peer.write("answer");
  while (tcpInfo(stream.fd).bytesReceived < 6) await new Promise((resolve) => setImmediate(resolve));
  const after = tcpInfo(stream.fd);
  assert.equal(after.bytesAcked - before.bytesAcked, 1000);
  assert.deepEqual([after.unacked, after.notSentBytes, after.probes, after.retransmits], [0, 0, 0, 0]);
  assert.ok(after.lastDataRecvMs < 5000 && after.lastAckRecvMs < 5000);
  stream.destroy();
  assert.equal(stream.transport(), undefined);
});

test("decodeTcpInfo: what an older kernel does not tell is 0", () => {
  const bytes = Buffer.alloc(148);
  bytes.writeUInt32LE(3, 24);
  bytes.writeUInt32LE(70, 52);
  bytes.writeUInt32LE(50, 56);
  bytes.writeBigUInt64LE(5_000_000_000n, 120);
  const { unacked, lastDataRecvMs, lastAckRecvMs, bytesAcked } = decodeTcpInfo(bytes);
  assert.deepEqual([unacked, lastDataRecvMs, lastAckRecvMs, bytesAcked], [3, 70, 50, 5_000_000_000]);
  assert.equal(decodeTcpInfo(bytes.subarray(0, 104)).bytesAcked, 0);
});
