/** docs/spec/tunnel.md#8.1: many streams on one session of a frontend, as the reusable tunnel of newer client libraries has. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type ClientHttp2Stream, connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { frameControl, frameData, TUNNEL_METHODS } from "#wire/konnectivity";
import { UnixTransport } from "../http2/unix-transport.ts";
import { FRONTEND_SETTINGS } from "../http2/windows.ts";
import { Bed } from "../testing/bed.ts";

const KIB = 1024;
/** More than hold, with their windows, three windows of the session. */
const STALLED = 200;

test("reusable tunnel: uploads that nobody reads stop no other stream of the session", async (t) => {
  await using bed = await Bed.open();
  // An agent that grants no credit beside the first 256 KiB of each connection.
  const agent = await bed.rawAgent("a", ["flow-control/1"]);
  const folder = mkdtempSync(join(tmpdir(), "isthmus-reusable-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "socket");
  await bed.listenOn(path, (stream) => bed.proxy.serveGrpcFrontend(new UnixTransport(stream), FRONTEND_SETTINGS));
  const session = connectHttp2("http://localhost", { createConnection: () => connect(path), maxSessionMemory: 1000 });
  session.on("error", () => undefined);
  await once(session, "remoteSettings");
  let id = 0;
  const opened = async (): Promise<ClientHttp2Stream> => {
    id += 1;
    const stream = session.request(
      { ":method": "POST", ":path": TUNNEL_METHODS.proxy, "content-type": "application/grpc", te: "trailers" },
      { endStream: false },
    );
    stream.on("error", () => undefined);
    stream.write(frameControl({ type: "DIAL_REQ", protocol: "tcp", address: "10.0.0.1:1", random: id }));
    await agent.until(() => agent.packets.some((packet) => packet.type === "DIAL_REQ" && packet.random === id));
    agent.send({ type: "DIAL_RSP", error: "", connectID: id, random: id });
    await once(stream, "data");
    return stream;
  };
  const block = Buffer.alloc(64 * KIB);
  const data = (): Buffer => Buffer.concat([frameData(id, block.length), block]);
  for (let at = 0; at < STALLED; at += 1) {
    const stream = await opened();
    for (let sent = 0; sent < 12; sent += 1) stream.write(data());
  }
  const before = STALLED * 256 * KIB;
  await agent.until(() => agent.received >= before, 5000);
  const other = await opened();
  for (let sent = 0; sent < 3; sent += 1) other.write(data());
  await agent.until(() => agent.received === before + 3 * block.length, 5000);
  session.destroy();
  assert.deepEqual(bed.bugs, []);
});
