/**
 * Every kind of listener of the suite, as data: where the sources listen, what bounds the clients that prove nothing, how one is started, what half a message and
 * a whole one are, and a client that is served.
 *
 * Owns: the table. Does not know: what strangers do (`#test/strangers`).
 *
 * ```ts
 * const { address } = await LISTENERS[0].start(folder);
 * await LISTENERS[0].good(address, folder);
 * ```
 */
import { once } from "node:events";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { connect as connectTls } from "node:tls";
import { systemClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { DEFAULT_SETTINGS } from "#base/uplink-model";
import { makeCertificates } from "#test/certificates";
import { CALL, encodeHead } from "#wire/cni-handover";
import type { BedOptions } from "../../src/features/tunnel/testing/bed.ts";
import { freePort } from "./ports.ts";

/** A listener is here. */
export interface Place {
  readonly port?: number;
  readonly path?: string;
  /** The port of what is behind the listener. */
  readonly behind?: number;
}

/** A kind of listener. */
export interface StrangersListener {
  readonly name: string;
  /** These reach it without a login. */
  readonly reach: string;
  /** The bound of connections of clients that have proved nothing. */
  readonly places: string;
  /** This ends such a connection. */
  readonly ends: string;
  /** One connection may have the program do and hold this. */
  readonly work: string;
  /** Files of `src` that listen for it. */
  readonly files: readonly string[];
  /** The number of strangers; 0600: the mode is what keeps others out, and these are of the program's own user. */
  readonly strangers: number;
  /** The permissions of the socket. */
  readonly mode?: number;

  /** Strangers shake hands in TLS before they send whole messages, and offer this protocol. */
  readonly alpn?: string;
  /** The same on another runtime; the page has one line for both. */
  readonly isVariant?: boolean;
  readonly half: string | Uint8Array;
  readonly request: string | Uint8Array;
  /** Listens until the process ends. `folder` has {@link prepare}d files. */
  start(folder: string): Promise<Place>;
  /** One good client: rejects unless it is served. It comes from another address than strangers. */
  good(place: Place, folder: string): Promise<void>;
}

const deps = {
  log: nullLogger,
  clock: systemClock,
  onBug: (error: unknown): void => {
    throw error;
  },
};
const GET = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
/** The number of series of a program with many pods. */
const SERIES = 300;
/** The address of the good client; strangers have 127.0.0.1. */
const GOOD = "127.0.0.2";

/** Writes certificates of `server` and `client`, and their authority, for both processes. */
export function prepare(folder: string): void {
  const { ca, pairs } = makeCertificates("strangers", { server: ["localhost", "127.0.0.1"], client: [] });
  writeFileSync(join(folder, "ca.crt"), ca);
  for (const [name, { cert, key }] of Object.entries(pairs)) {
    writeFileSync(join(folder, `${name}.crt`), cert);
    writeFileSync(join(folder, `${name}.key`), key);
  }
  mkdirSync(join(folder, "webhook"));
  writeFileSync(join(folder, "webhook/tls.crt"), pairs.server.cert);
  writeFileSync(join(folder, "webhook/tls.key"), pairs.server.key);
}

async function registry() {
  const { createRegistry, Gauge } = await import("#base/metrics");
  const made = createRegistry();
  const gauge = new Gauge({
    name: "strangers_test",
    help: "a series for each pod",
    labelNames: ["pod"],
    registers: [made],
  });
  for (let at = 0; at < SERIES; at += 1) gauge.set({ pod: `namespace/pod-with-a-name-${at}` }, at);
  return made;
}

/** Sends bytes and waits for an answer that has this text. */
async function asks(socket: Socket, bytes: string | Uint8Array, wanted: string): Promise<void> {
  try {
    socket.write(bytes);
    let text = "";
    for await (const chunk of socket as AsyncIterable<Buffer>) {
      text += chunk.toString("latin1");
      if (text.includes(wanted)) return;
    }
    throw new Error(`the good client got ${JSON.stringify(text.slice(0, 200))}, and not ${wanted}`);
  } finally {
    socket.destroy();
  }
}

async function come({ port, path }: Place): Promise<Socket> {
  const socket =
    path === undefined ? connect({ host: "127.0.0.1", port: port ?? 0, localAddress: GOOD }) : connect({ path });
  await once(socket, "connect");
  return socket;
}

async function comeTls(
  place: Place,
  folder: string,
  { isKnown, alpn }: { readonly isKnown: boolean; readonly alpn: string },
): Promise<Socket> {
  const ca = readFileSync(join(folder, "ca.crt"));
  const pair = isKnown
    ? { cert: readFileSync(join(folder, "client.crt")), key: readFileSync(join(folder, "client.key")) }
    : {};
  const socket = connectTls({ socket: await come(place), ca, ...pair, servername: "localhost", ALPNProtocols: [alpn] });
  await once(socket, "secureConnect");
  return socket;
}

const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/** An empty SETTINGS, then a PING: each has to be answered. */
const FRAMES = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
/** The good client of HTTP/2. */
async function pinged(socket: Socket): Promise<void> {
  await asks(socket, Buffer.concat([Buffer.from(PREFACE), FRAMES]), FRAMES.toString("latin1", 18));
}

/** The first bytes of a ClientHello of 512 bytes. */
const HALF_HELLO = Buffer.from([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, ...Array<number>(60).fill(7)]);

/** A ClientHello with a server name, of TLS 1.2, as the router reads it. */
function hello(name: string): Buffer {
  const bytes = Buffer.from(name);
  const u16 = (value: number): Buffer => Buffer.from([value >> 8, value & 255]);
  const entry = Buffer.concat([Buffer.from([0]), u16(bytes.length), bytes]);
  const list = Buffer.concat([u16(entry.length), entry]);
  const extension = Buffer.concat([u16(0), u16(list.length), list]);
  const body = Buffer.concat([
    Buffer.from([3, 3]),
    Buffer.alloc(32, 1),
    Buffer.from([0, 0, 2, 19, 1, 1, 0]),
    u16(extension.length),
    extension,
  ]);
  const handshake = Buffer.concat([Buffer.from([1, 0]), u16(body.length), body]);
  return Buffer.concat([Buffer.from([22, 3, 1]), u16(handshake.length), handshake]);
}

function call(): Buffer {
  const head = Buffer.from(encodeHead("/run/x.sock.call1"));
  head.writeUInt32LE(4, CALL.environmentBytes);
  return Buffer.concat([head, Buffer.from("A=B\0")]);
}

async function echo(): Promise<number> {
  const server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.pipe(socket);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return (server.address() as AddressInfo).port;
}

const tlsOf = (folder: string, clientCa?: string) => ({
  cert: join(folder, "server.crt"),
  key: join(folder, "server.key"),
  clientCa: clientCa === undefined ? undefined : join(folder, clientCa),
});
const LIMITS = { cipherSuites: [], tlsMinVersion: "", newcomers: { max: 40 } } as const;
/** Starts a listener for agents of a `proxy-server`. */
async function startForAgents(tls: ReturnType<typeof tlsOf>): Promise<{ readonly port: number }> {
  const { tunnel } = await proxyServer();
  const port = await freePort();
  const { listenForAgents } = await import("#features/tunnel");
  await listenForAgents(tunnel, { address: { host: "127.0.0.1", port }, tls }, LIMITS);
  return { port };
}

async function proxyServer(options: BedOptions = {}) {
  const { Bed } = await import("../../src/features/tunnel/testing/bed.ts");
  const bed = await Bed.open(options);
  return { bed, tunnel: { ...deps, proxy: bed.proxy } };
}

async function startUplinkProxy(streams: "epoll" | "node"): Promise<Place> {
  const { UplinkProxy } = await import("#features/uplink-proxy");
  const { FakeSnapshots, hostListener, snapshotOf, uplink } = await import(
    "../../src/features/uplink-proxy/testing/proxy-fixtures.ts"
  );
  const port = await freePort();
  const behind = await echo();
  const settings = {
    ...DEFAULT_SETTINGS,
    workers: 1,
    limits: { ...DEFAULT_SETTINGS.limits, pendingHeaders: 40 },
    metrics: true,
    allowLoopback: true,
    maxCost: 255,
    listeners: [hostListener(port)],
  };
  const snapshots = new FakeSnapshots(snapshotOf([uplink("lo", { sources: ["127.0.0.1"] })]));
  const nothing = (): void => undefined;
  const evidence = {
    dialSucceeded: nothing,
    dialFailed: nothing,
    firstByte: nothing,
    bytesReceived: nothing,
    blackholed: nothing,
    stalled: nothing,
  };
  const proxy = new UplinkProxy({ snapshots, evidence, ...deps }, settings, { version: "0", streams });
  void proxy.run({ signal: new AbortController().signal });
  while (!proxy.bound.has("host")) await new Promise((resolve) => setImmediate(resolve));
  return { port, behind };
}

const HTTP = { half: "GET /metrics HT", request: GET } as const;
const ENDPOINT = {
  places: "64, or a sixteenth of the descriptors; the address that has the most gives one up",
  ends: "5 s without a head, 75 s between requests, 10 s without reading",
  work: "one request at a time, 16 KiB ahead; one exposition for all; 8 MiB of answers that nobody reads",
} as const;
const OWN = "who runs as the program's user: mode 0600";

export const LISTENERS: readonly StrangersListener[] = [
  {
    name: "health, metrics, profiles of every program",
    reach: "anybody, or health alone with `--metrics-from`",
    ...ENDPOINT,
    files: ["src/wire/http-endpoint/endpoint.ts"],
    strangers: 70,
    ...HTTP,
    start: async () => {
      const { metricsRoute, serveRoutes } = await import("../../src/programs/shared/http-endpoints/http.ts");
      const routes = { "/metrics": metricsRoute(await registry()) };
      return await serveRoutes({ ...deps, routes }, { address: { host: "127.0.0.1", port: 0 } });
    },
    good: async (place) => await asks(await come(place), GET, "pod-with-a-name-299"),
  },
  {
    name: "`service-proxy`: health, metrics, health checks of Services",
    reach: "anybody; metrics by default the node itself",
    places: "1,024, or a sixteenth of the descriptors; the address that has the most gives one up",
    ends: ENDPOINT.ends,
    work: ENDPOINT.work,
    files: ["src/features/service-health/http/probe-http.ts"],
    strangers: 70,
    ...HTTP,
    start: async () => {
      const { MetricsServer } = await import("#features/service-health");
      const server = new MetricsServer(
        { ...deps, registry: await registry(), configz: () => ({}) },
        { address: { host: "127.0.0.1", port: 0 }, hardFail: true },
      );
      void server.run({ signal: new AbortController().signal });
      while (server.port === undefined) await new Promise((resolve) => setImmediate(resolve));
      return { port: server.port };
    },
    good: async (place) => await asks(await come(place), GET, "pod-with-a-name-299"),
  },
  {
    name: "webhooks of controllers",
    reach: "anybody, also with `--webhook-client-ca`: the handshake tells who it is",
    places: "256; the address that has the most gives one up",
    ends: "10 s for the handshake, 10 s for a head, 30 s for a review",
    work: "one request at a time; a review of 8 MiB, 64 MiB of all long ones",
    files: ["src/kube/webhook/server.ts"],
    strangers: 70,

    alpn: "http/1.1",
    half: HALF_HELLO,
    request: "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n",
    start: async (folder) => {
      const { WebhookServer } = await import("#kube/webhook");
      const certDir = join(folder, "webhook");
      return await WebhookServer.listen({ ...deps, host: "127.0.0.1", port: 0, certDir, handlers: {} });
    },
    good: async (place, folder) => {
      const socket = await comeTls(place, folder, { isKnown: false, alpn: "http/1.1" });
      await asks(socket, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n", "no webhook at /x");
    },
  },
  {
    name: "`sni-router`",
    reach: "anybody",
    places:
      "`--max-connections`, of which without a hello an eighth of the descriptors, and half of these for an address; when all are taken an address with more than half of them gives one up",
    ends: "5 s without a hello; then as the backend does",
    work: "64 KiB until a backend is there; then the buffers of two sockets",
    files: ["src/features/sni-router/router.ts"],
    strangers: 70,

    half: HALF_HELLO,
    request: hello("a.example"),
    start: async () => {
      const { routeTo, startRouter, tableOf } = await import("../../src/features/sni-router/testing/bed.ts");
      const scope = { after: () => undefined };
      const { port } = await startRouter(scope, tableOf(routeTo("a.example", [await echo()])), { maxConnections: 16 });
      return { port };
    },
    good: async (place) => await asks(await come(place), hello("a.example"), "a.example"),
  },
  {
    name: "`proxy-server`: agents, with certificates",
    reach: "anybody; served are certificates of `--cluster-ca-cert`",
    places: "an eighth of the descriptors, 1,024 at most; an address has half of them, but for balancers",
    ends: "30 s for the handshake; after 2 s the place, when another one of the address comes",
    work: "a handshake",
    files: [
      "src/features/tunnel/server/listeners.ts",
      "src/features/tunnel/server/front.ts",
      "src/features/tunnel/server/listener.ts",
    ],
    strangers: 70,

    alpn: "h2",
    half: HALF_HELLO,
    request: FRAMES,
    start: async (folder) => await startForAgents(tlsOf(folder, "ca.crt")),
    good: async (place, folder) => await pinged(await comeTls(place, folder, { isKnown: true, alpn: "h2" })),
  },
  {
    name: "`proxy-server`: agents, with tokens",
    reach: "anybody; served are tokens that a TokenReview confirms",
    places: "as with certificates, until a token is confirmed",
    ends: "as with certificates; 90 s without a stream that was accepted",
    work: "a handshake, HTTP/2 with 16 streams, 32 reviews of tokens at once for all",
    files: ["src/features/tunnel/server/listeners.ts"],
    strangers: 70,

    alpn: "h2",
    half: HALF_HELLO,
    request: FRAMES,
    start: async (folder) => await startForAgents(tlsOf(folder)),
    good: async (place, folder) => await pinged(await comeTls(place, folder, { isKnown: false, alpn: "h2" })),
  },
  {
    name: "`proxy-server`: frontends by TCP",
    reach: "anybody; served are certificates of `--server-ca-cert`",
    places: "as for agents",
    ends: "as for agents",
    work: "a handshake",
    files: ["src/features/tunnel/server/listeners.ts"],
    strangers: 70,

    alpn: "http/1.1",
    half: HALF_HELLO,
    request: "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    start: async (folder) => {
      const { tunnel } = await proxyServer();
      const port = await freePort();
      const frontend = { kind: "tcp", address: { host: "127.0.0.1", port }, tls: tlsOf(folder, "ca.crt") } as const;
      const { listenForFrontends } = await import("#features/tunnel");
      await listenForFrontends(tunnel, frontend, { ...LIMITS, mode: "http-connect" });
      return { port };
    },
    good: async (place, folder) => {
      const socket = await comeTls(place, folder, { isKnown: true, alpn: "http/1.1" });
      await asks(socket, "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n", "no agent is connected");
    },
  },
  {
    name: "`proxy-server`: frontends by `--uds-name`",
    reach: "the program's user and the socket's group: mode 0770",
    places: "those that have sent no request: as many as for agents; the oldest gives its place up",
    ends: "60 s without a request (HTTP CONNECT)",
    work: "as the API server: who reaches it is let in",
    files: ["src/features/tunnel/server/listeners.ts", "src/kernel/reactor/unix-listener.ts"],
    strangers: 70,
    mode: 0o770,

    half: "CONNECT 127.0.0.1:1 HT",
    request: "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n",
    start: async (folder) => {
      const { tunnel } = await proxyServer();
      const path = join(folder, "frontends.sock");
      const { listenForFrontends } = await import("#features/tunnel");
      await listenForFrontends(
        tunnel,
        { kind: "uds", path, deleteExisting: false },
        { ...LIMITS, mode: "http-connect" },
      );
      return { path };
    },
    good: async (place) =>
      await asks(await come(place), "CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: x\r\n\r\n", "no agent is connected"),
  },
  {
    name: "`service-proxy`: NodePorts at 127.0.0.1 and ::1",
    reach: "the node itself, with `localhost` in `--nodeport-addresses` alone",
    places: "1,024; an address has half of them",
    ends: "10 s of a Service that does not answer; then as its endpoint does",
    work: "a connection to the Service; the buffers of two sockets",
    files: ["src/features/service-proxy/localhost/local-node-ports.ts"],
    strangers: 70,

    half: "x",
    request: "y".repeat(1024),
    start: async () => {
      const { LocalNodePorts } = await import("../../src/features/service-proxy/localhost/index.ts");
      const behind = await echo();
      const port = await freePort();
      const local = new LocalNodePorts({ ...deps, maxConnections: 30 });
      void local.run({ signal: new AbortController().signal });
      const target = { address: IpAddress.parse("127.0.0.1"), port: behind };
      local.set({ ports: new Map([[port, { service: "ns/web", targets: new Map([[4, target]]) }]]), others: 0 });
      return { port };
    },
    good: async (place) => await asks(await come(place), "hello", "hello"),
  },
  {
    name: "`proxy-agent`: bind addresses",
    reach: "the node, and `--allowed-source` if given, else anybody who reaches the address",
    places: "as many as descriptors allow with two for each; an address has half of them",
    ends: "10 s of a dial that no server answers; then as the API server does",
    work: "a dial; the credit of one connection in the tunnel",
    files: ["src/features/tunnel/agent/reverse-listener.ts"],
    strangers: 70,

    half: "x",
    request: "y".repeat(1024),
    start: async () => {
      const behind = `127.0.0.1:${await echo()}`;
      const { bed } = await proxyServer({ allowedDestinations: [behind] });
      const link = await bed.agent();
      const port = await freePort();
      const { Counts } = await import("../../src/features/tunnel/testing/bed.ts");
      const { ReverseListener } = await import("../../src/features/tunnel/agent/reverse-listener.ts");
      const { parseTarget } = await import("../../src/features/tunnel/agent/target.ts");
      await ReverseListener.open(
        { ...deps, links: () => [link], metrics: new Counts().agent() },
        {
          bindAddresses: [IpAddress.parse("127.0.0.1")],
          targets: [parseTarget(`${port}:${behind}`)],
          allowedSources: [],
          halfCloseTimeoutMs: 1000,
          maxClients: 30,
        },
      );
      return { port };
    },
    good: async (place) => await asks(await come(place), "hello", "hello"),
  },
  ...(["epoll", "node"] as const).map(
    (streams): StrangersListener => ({
      name: `\`uplink-proxy\`: its listeners${streams === "epoll" ? "" : ", with sockets of Node"}`,
      reach: "who reaches the address: loopback, or a bridge of pods, where a token is asked for",
      places: "`limits.pendingHeaders` without a head, `limits.tunnels`; a pod `limits.podTunnelsPerClient`",
      ends: "`limits.headerTimeoutMs`, `limits.keepAliveMs`; then as the destination does",
      work: "one request at a time; the next one is read when the answer to it was taken",
      files:
        streams === "epoll"
          ? ["src/features/uplink-proxy/listen/bind-loop.ts", "src/programs/daemons/uplink-proxy/serve.ts"]
          : ["src/kernel/reactor/node-sockets.ts"],
      strangers: 70,
      isVariant: streams === "node",
      ...HTTP,
      start: () => startUplinkProxy(streams),
      good: async (place) => {
        await asks(await come(place), `CONNECT 127.0.0.1:${place.behind} HTTP/1.1\r\nHost: x\r\n\r\n`, "200");
      },
    }),
  ),
  {
    name: "`uplink-proxy`: control socket",
    reach: OWN,
    places: "32; the one that has been without a request for longest gives its place up",
    ends: "5 s without a byte",
    work: "16 KiB a request",
    files: ["src/features/uplink-routing/control/control.ts"],
    strangers: 20,
    mode: 0o600,
    ...HTTP,
    request: "GET /v1/uplinks HTTP/1.1\r\nHost: x\r\n\r\n",
    start: async (folder) => {
      const path = join(folder, "control.sock");
      const { serveControl } = await import("../../src/features/uplink-routing/control/index.ts");
      await serveControl({ ...deps, uplinks: () => [], reportStatus: () => false }, { path });
      return { path };
    },
    good: async (place) => await asks(await come(place), "GET /v1/uplinks HTTP/1.1\r\nHost: x\r\n\r\n", "uplinks"),
  },
  {
    name: "`coild`, `nic-agent`: CNI by gRPC",
    reach: OWN,
    places: "1,024; the one that has been without a call for longest gives its place up",
    ends: "never; a call 60 s",
    work: "256 calls at once, 4 MiB each",
    files: ["src/features/cni/grpc-server.ts"],
    strangers: 70,
    mode: 0o600,

    half: PREFACE.slice(0, 10),
    request: FRAMES,
    start: async (folder) => {
      const socketPath = join(folder, "cni.sock");
      const { serveGrpc } = await import("#features/cni");
      await serveGrpc({ ...deps, socketPath, handlers: {} });
      return { path: socketPath };
    },
    good: async (place) => await pinged(await come(place)),
  },
  {
    name: "`coild`: calls that launchers hand over",
    reach: OWN,
    places: "1,024; the oldest one whose call has not come gives its place up",
    ends: "60 s",
    work: "one call of 4 MiB",
    files: ["src/features/cni/handover-server.ts"],
    strangers: 70,
    mode: 0o600,

    half: call().subarray(0, 20),
    request: call(),
    start: async (folder) => {
      const socketPath = join(folder, "handover.sock");
      const { serveHandover } = await import("#features/cni");
      await serveHandover({ ...deps, socketPath, run: async () => ({ exitCode: 0, to: "stdout", text: "done" }) });
      return { path: socketPath };
    },
    good: async (place) => await asks(await come(place), call(), "done"),
  },
  {
    name: "`--heap-snapshot-socket`",
    reach: OWN,
    places: "2",
    ends: ENDPOINT.ends,
    work: "a snapshot of the heap",
    files: ["src/programs/shared/http-endpoints/heap-snapshot.ts"],
    strangers: 20,
    mode: 0o600,
    ...HTTP,
    start: async (folder) => {
      const path = join(folder, "heap.sock");
      const { serveHeapSnapshots } = await import("../../src/programs/shared/http-endpoints/heap-snapshot.ts");
      await serveHeapSnapshots(deps, { path });
      return { path };
    },
    good: async (place) => await asks(await come(place), GET, "404"),
  },
];

/** Files of `src` that make a socket which listens, and serve no client of it. */
export const HELPERS: readonly string[] = [
  "src/base/workers/worker-group.ts",
  "src/kernel/socket/inet.ts",
  "src/kernel/socket/unix.ts",
];

/**
 * Files of `src` with sockets for datagrams. Nobody holds a connection there, and each queue has a limit; what a flood costs is bounded by the router's guard (50 a second of a client,
 * `probeClaims` of `features/egress`) and by the socket itself (`probe-socket.netns.test.ts`).
 */
export const DATAGRAMS: readonly string[] = [
  "src/programs/daemons/coil-egress/answer-probes.ts",
  "src/features/egress/node/probe-socket.ts",
];
