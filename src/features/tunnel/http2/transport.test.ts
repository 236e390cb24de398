import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { C, getsockopt } from "#kernel/ffi";
import { makeCertificates } from "#test/certificates";
import { descriptorOf } from "./descriptor.ts";
import { SocketTransport } from "./transport.ts";

/** SO_KEEPALIVE; TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_USER_TIMEOUT of IPPROTO_TCP. */
const OPTIONS = [
  [C.SOL_SOCKET, 9],
  [6, 4],
  [6, 5],
  [6, 18],
] as const;

/** The options of both ends of a connection, which is under a transport on each. */
async function optionsOf(
  t: TestContext,
  server: Server,
  event: "connection" | "secureConnection",
  dial: (port: number) => Socket,
): Promise<readonly (readonly number[])[]> {
  await once(server.listen(0, "127.0.0.1"), "listening");
  const client = dial((server.address() as AddressInfo).port);
  const connected = once(client, event === "connection" ? "connect" : "secureConnect");
  const [accepted] = (await once(server, event)) as [Socket];
  await connected;
  t.after(() => {
    for (const socket of [client, accepted]) socket.destroy();
    server.close();
  });
  return [client, accepted].map((socket) => {
    new SocketTransport(socket);
    const fd = descriptorOf(socket);
    assert.ok(fd !== undefined);
    return OPTIONS.map(([level, option]) => getsockopt(fd, level, option));
  });
}

test("SocketTransport: the kernel probes the peer of TCP every 15 s, also under TLS, and gives it up after 30 s", async (t) => {
  const expected = [1, 15, 15, 30_000];
  const plain = await optionsOf(t, createServer(), "connection", (port) => connect(port, "127.0.0.1"));
  assert.deepEqual(plain, [expected, expected]);
  const { ca, pairs } = makeCertificates("cluster", { server: ["localhost"] });
  const secure = await optionsOf(t, createTlsServer(pairs.server), "secureConnection", (port) =>
    connectTls({ port, host: "127.0.0.1", servername: "localhost", ca }),
  );
  assert.deepEqual(secure, [expected, expected]);
});
