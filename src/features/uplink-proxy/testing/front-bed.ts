import assert from "node:assert/strict";
import type { Socket } from "node:net";
import type { TestContext } from "node:test";
import { type ByteStream, NodeStream, type TransportState } from "#base/byte-stream";
import { FakeClock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import type { ListenerSettings, Settings } from "#base/uplink-model";
import { connectTcp, TcpStream } from "#kernel/reactor";
import {
  Descriptors,
  HttpConnection,
  PendingHeads,
  type PlainHttp,
  TunnelLimiter,
  TunnelService,
} from "../front/index.ts";
import { ClientLimits } from "../policy/index.ts";
import { RelayTimer } from "../relay/index.ts";
import { type DialRequest, type DialResult, Penalties, Rotation, SegmentSizes, SelectError } from "../select/index.ts";
import { Counters, LogLines, Traffic } from "../stats/index.ts";
import {
  EvidenceLog,
  FakeSnapshots,
  hostListener,
  listenerFor,
  serverFor,
  settingsOf,
  snapshotOf,
  TestClient,
  uplink,
} from "./proxy-fixtures.ts";

/** The limit of each test: its waits have no deadline of their own. */
export const TIMEOUT = { timeout: 20_000 };
const TOKEN = "ab".repeat(32);
/** The field by which a pod of {@link FrontBed} shows its token. */
export const AUTH = `Proxy-Authorization: Basic ${Buffer.from(`cdi:${TOKEN}`).toString("base64")}\r\n`;
/** The listener for pods. */
export const POD: Partial<ListenerSettings> = { role: "pod", name: "pods", auth: "token" };

/** The kernel's data of a connection whose bytes are not acknowledged. On loopback they always are. */
export const SWALLOWED: TransportState = { unacked: 1, probes: 0, ackedBytes: 1, heardMs: 3_600_000 };

/** A front end over real sockets of loopback; the test replaces dialling and the clock. */
export class FrontBed {
  readonly clock = new FakeClock();
  readonly evidence = new EvidenceLog();
  readonly counters: Counters;
  readonly penalties: Penalties;
  readonly snapshots = new FakeSnapshots(snapshotOf([uplink("eth0"), uplink("eth1", { cost: 1 })]));
  readonly dials: string[] = [];
  readonly segments = new SegmentSizes(this.clock);
  readonly pending: PendingHeads;
  readonly tunnelService: TunnelService;
  readonly limiter: TunnelLimiter;
  readonly bugs: unknown[] = [];
  /** Clients whose token was wrong. */
  readonly wrongTokens: string[] = [];
  /** The dial function; by default it connects to an echo server. */
  dial: (request: DialRequest) => Promise<DialResult<ByteStream>>;
  hasAlternative = true;
  /** The number of open descriptors, of a limit of a hundred. */
  openDescriptors = 10;
  isDraining = false;
  isReady = true;
  tokens: readonly string[] | undefined = [TOKEN];
  healthz = "{}\n";
  port = 0;
  /** Sockets of the front end. */
  clients: ReadonlySet<Socket> = new Set();

  private constructor(settings: Settings, echoPort: number) {
    this.counters = new Counters(this.clock);
    this.penalties = new Penalties(this.clock, settings.selection);
    this.pending = new PendingHeads(() => settings.limits.pendingHeaders);
    const descriptors = new Descriptors({ limit: 100, count: () => this.openDescriptors });
    this.limiter = new TunnelLimiter(() => settings.limits, { descriptors });
    this.dial = () => this.connected(echoPort, "eth0");
    this.tunnelService = new TunnelService({
      clock: this.clock,
      settings: () => settings,
      snapshots: this.snapshots,
      penalties: this.penalties,
      rotation: new Rotation(),
      segments: this.segments,
      evidence: this.evidence,
      limiter: this.limiter,
      timer: new RelayTimer(this.clock),
      traffic: new Traffic(),
      record: (event) => this.counters.record(event),
      lines: new LogLines(nullLogger, this.clock),
      onBug: (error) => this.bugs.push(error),
      dialler: {
        dial: async (request) => {
          const { address, text } = request.destination;
          if (address !== undefined && request.judge([address]) === "denied") {
            throw new SelectError("denied", `${text} is not an allowed destination`);
          }
          this.dials.push(text);
          return await this.dial(request);
        },
        hasAlternative: () => this.hasAlternative,
      },
    });
  }

  /** `isNative`: clients are our own streams, as in the program; else they are sockets of Node.js. */
  static async open(
    t: TestContext,
    fields: Partial<Settings> = {},
    listener: Partial<ListenerSettings> = {},
    options: { readonly isNative?: boolean; readonly plainHttp?: PlainHttp } = {},
  ): Promise<FrontBed> {
    const echo = await serverFor(t, (socket) => socket.pipe(socket));
    const settings = settingsOf({ allowLoopback: false, ...fields });
    const bed = new FrontBed(settings, echo.port);
    const listening = hostListener(5443, listener);
    const clients = new ClientLimits(bed.clock, () => settings.limits);
    const serve = (client: ByteStream): void => {
      new HttpConnection(client, listening, {
        clock: bed.clock,
        settings: () => settings,
        tunnelService: bed.tunnelService,
        pending: bed.pending,
        clients,
        plainHttp: options.plainHttp,
        record: (event) => bed.counters.record(event),
        lines: { wrongToken: (client) => bed.wrongTokens.push(client) },
        isDraining: () => bed.isDraining,
        tokens: () => bed.tokens,
        healthz: async () => bed.healthz,
        readyz: async () => ({ isReady: bed.isReady, text: bed.isReady ? "ok\n" : "[-]uplinks degraded\nnot ready\n" }),
        metrics: async () => "metrics 1\n",
        onBug: (error) => bed.bugs.push(error),
      }).start();
    };
    if (options.isNative === true) {
      bed.port = listenerFor(t, (fd, remote) => serve(TcpStream.adopt(fd, remote))).port;
    } else {
      const { port, clients: accepted } = await serverFor(t, (socket) => serve(new NodeStream(socket)));
      bed.port = port;
      bed.clients = accepted;
    }
    t.after(() => {
      bed.tunnelService.closeAll("drain");
      assert.deepEqual(bed.bugs, []);
    });
    return bed;
  }

  /** A connection to a server of loopback, as if over an uplink. */
  async connected(
    port: number,
    name: string,
    options: { readonly isHole?: boolean } = {},
  ): Promise<DialResult<ByteStream>> {
    const address = IpAddress.parse("127.0.0.1");
    const connection = await connectTcp({ address, port });
    if (options.isHole === true) connection.transport = () => SWALLOWED;
    const via = this.snapshots.current.uplinks.find((each) => each.name === name);
    return { connection, address, failures: [], ...(via === undefined ? {} : { uplink: via }) };
  }

  /** All bytes that a client reads in answer to a text, until the connection ends or the next answer is awaited. */
  async ask(t: TestContext, text: string, until = "\r\n\r\n"): Promise<string> {
    const client = await TestClient.to(t, this.port);
    client.write(text);
    const answer = await client.read(until);
    client.socket.destroy();
    return answer;
  }
}

/** Resolves once a socket of a server has read this number of bytes. */
export async function waitBytes(socket: Socket | undefined, bytes: number): Promise<void> {
  while ((socket?.bytesRead ?? 0) < bytes) await new Promise((resolve) => setImmediate(resolve));
}
