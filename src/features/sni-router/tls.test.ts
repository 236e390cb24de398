import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, connect as connectTcp, type Socket } from "node:net";
import { Duplex } from "node:stream";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { type ConnectionOptions, connect, createServer, type TLSSocket, type TlsOptions } from "node:tls";
import { makeCertificates } from "#test/certificates";
import { checksum, routeTo, type Scope, startRouter, tableOf, until } from "./testing/bed.ts";

const makeCluster = (name: string) => makeCertificates(`cluster-${name}`, { server: [`${name}.example`], agent: [] });
type Cluster = ReturnType<typeof makeCluster>;
const [a, b] = [makeCluster("a"), makeCluster("b")];

/** A proxy server's TLS port: a certificate of its cluster's authority, and only agents of that authority. */
async function startServer(scope: Scope, { ca, pairs }: Cluster, onClient: (socket: TLSSocket) => void) {
  const options: TlsOptions = { ...pairs.server, ca, requestCert: true, rejectUnauthorized: true };
  const refusals: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer(options, onClient);
  server.on("connection", (socket: Socket) => sockets.add(socket));
  server.on("tlsClientError", (error: NodeJS.ErrnoException) => refusals.push(error.code ?? error.message));
  await once(server.listen(0, "127.0.0.1"), "listening");
  scope.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, refusals };
}

/** The options of a cluster's agent. */
const agentOf = ({ ca, pairs }: Cluster): ConnectionOptions => ({ ca, ...pairs.agent });

function dial(scope: Scope, port: number, options: ConnectionOptions): TLSSocket {
  const socket = connect({ host: "127.0.0.1", port, ...options });
  scope.after(() => socket.destroy());
  return socket;
}

/** The issuer of a server's certificate. */
const issuerOf = (socket: TLSSocket): string | string[] | undefined => socket.getPeerCertificate().issuer["CN"];

/** The servers of both clusters, which send their names, behind one router. */
async function startBoth(scope: Scope) {
  const reached: string[] = [];
  const greet = (name: string) => (socket: TLSSocket) => {
    reached.push(name);
    socket.resume().end(`I am ${name}`);
  };
  const servers = { a: await startServer(scope, a, greet("a")), b: await startServer(scope, b, greet("b")) };
  const routes = tableOf(routeTo("a.example", [servers.a.port]), routeTo("*.example", [servers.b.port]));
  return { ...(await startRouter(scope, routes)), servers, reached };
}

test("SniRouter: one address, two clusters: each agent meets its own server and its certificate", async (t) => {
  const { port, observer } = await startBoth(t);
  for (const [cluster, name] of [
    [a, "a"],
    [b, "b"],
  ] as const) {
    for (const version of ["TLSv1.2", "TLSv1.3"] as const) {
      const protocols: ConnectionOptions = { minVersion: version, maxVersion: version };
      const socket = dial(t, port, { ...agentOf(cluster), servername: `${name}.example`, ...protocols });
      await once(socket, "secureConnect");
      assert.deepEqual([socket.getProtocol(), issuerOf(socket)], [version, `cluster-${name}`]);
      assert.equal(await text(socket), `I am ${name}`);
    }
  }
  await until(() => observer.clients === 0);
  assert.deepEqual(observer.decisions.toSorted(), [
    "*.example:routed",
    "*.example:routed",
    "a.example:routed",
    "a.example:routed",
  ]);
});

test("SniRouter: an agent of cluster a that sends the name of b refuses b's server, and is refused by it", async (t) => {
  const { port, servers, reached, observer } = await startBoth(t);
  const asking = { ...agentOf(a), servername: "b.example" };
  // It checks the server against its own authority.
  const [distrust] = await once(dial(t, port, asking), "error");
  assert.match(String((distrust as NodeJS.ErrnoException).code), /UNABLE_TO_VERIFY_LEAF_SIGNATURE|SELF_SIGNED/);
  // Without that check the server refuses it: in TLS 1.2 within the handshake, in 1.3 with the first bytes after it.
  for (const maxVersion of ["TLSv1.2", "TLSv1.3"] as const) {
    const careless = dial(t, port, { ...asking, rejectUnauthorized: false, maxVersion });
    // The error depends on which side writes first. In any case it receives no bytes of b.
    careless.on("error", () => careless.destroy());
    careless.on("data", (bytes) => assert.fail(`b said ${bytes}`));
    await new Promise<void>((resolve) => careless.once("close", () => resolve()));
  }
  await until(() => observer.clients === 0);
  // The alert of the client that checks, and the two certificates of the wrong authority.
  assert.equal(servers.b.refusals.length, 3, servers.b.refusals.join());
  assert.deepEqual([reached, servers.a.refusals], [[], []]);
});

test("SniRouter: a name without a route gets an alert that TLS libraries report in words", async (t) => {
  const { port } = await startBoth(t);
  for (const servername of ["other.name", undefined]) {
    const socket = dial(t, port, { ...agentOf(a), ...(servername === undefined ? {} : { servername }) });
    const [error] = await once(socket, "error");
    assert.equal((error as NodeJS.ErrnoException).code, "ERR_SSL_TLSV1_UNRECOGNIZED_NAME");
  }
});

test("SniRouter: a real handshake byte by byte, and 1 MiB each way at once with equal checksums", async (t) => {
  const [question, answer] = [randomBytes(1_048_576), randomBytes(1_048_576)];
  const received: Promise<string>[] = [];
  const server = await startServer(t, a, (socket) => {
    received.push(checksum(socket));
    socket.end(answer);
  });
  const { port, observer } = await startRouter(t, tableOf(routeTo("a.example", [server.port])));
  const tcp = connectTcp({ port, host: "127.0.0.1", noDelay: true, allowHalfOpen: true });
  t.after(() => tcp.destroy());
  const client = connect({ socket: bytewise(tcp, 2000), ...agentOf(a), servername: "a.example" });
  client.end(question);
  const digest = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");
  assert.equal(await checksum(client), digest(answer));
  assert.equal(await received[0], digest(question));
  assert.ok(observer.bytes.to_backend > question.length && observer.bytes.to_client > answer.length);
  await until(() => observer.clients === 0);
});

/** A socket whose first bytes are sent one by one. */
function bytewise(socket: Socket, first: number): Duplex {
  let left = first;
  const duplex = new Duplex({
    allowHalfOpen: true,
    read: () => void socket.resume(),
    write: (chunk: Buffer, _encoding, done) => {
      const single = chunk.subarray(0, left);
      left -= single.length;
      for (const byte of single) socket.write(Buffer.of(byte));
      if (single.length === chunk.length) done();
      else socket.write(chunk.subarray(single.length), done);
    },
    final: (done) => void socket.end(done),
  });
  socket.on("data", (chunk) => {
    if (!duplex.push(chunk)) socket.pause();
  });
  socket.on("end", () => duplex.push(null));
  socket.on("error", (error) => duplex.destroy(error));
  return duplex;
}
