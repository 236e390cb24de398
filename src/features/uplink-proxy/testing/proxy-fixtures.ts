import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import type { TestContext } from "node:test";
import { IpAddress } from "#base/ip";
import {
  DEFAULT_SETTINGS,
  type DialFailure,
  type Evidence,
  type ListenerSettings,
  type Settings,
  type Snapshot,
  type SnapshotSource,
  UNTESTED,
  type Uplink,
} from "#base/uplink-model";
import { TcpListener } from "#kernel/reactor";
import { type Endpoint, listenTcp, localEndpoint } from "#kernel/socket";

/** An uplink with the fields that a test sets; by default it has cost 0 and one usable address. */
export function uplink(name: string, fields: Partial<Uplink> & { readonly sources?: readonly string[] } = {}): Uplink {
  const { sources = ["192.0.2.10"], ...rest } = fields;
  return {
    name,
    ifName: name,
    cost: 0,
    isManagement: true,
    isL3: true,
    isValid: true,
    isUp: true,
    weight: 1,
    addresses: sources.map((text) => {
      const address = IpAddress.parse(text);
      return { address, prefixLength: address.bits - 8, isUsable: !address.isLinkLocal };
    }),
    dnsServers: [],
    searchDomains: [],
    status: UNTESTED,
    ...rest,
  };
}

/** A ready snapshot of uplinks. */
export function snapshotOf(uplinks: readonly Uplink[], fields: Partial<Snapshot> = {}): Snapshot {
  return { ready: true, maxCost: 255, dialTimeoutMs: 10_000, uplinks, localAddresses: [], bypass: [], ...fields };
}

/** Snapshots that a test changes. */
export class FakeSnapshots implements SnapshotSource {
  readonly #listeners = new Set<(snapshot: Snapshot) => void>();
  current: Snapshot;
  refreshes = 0;

  constructor(current: Snapshot) {
    this.current = current;
  }

  set(snapshot: Snapshot): void {
    this.current = snapshot;
    for (const listener of this.#listeners) listener(snapshot);
  }

  onChange(listener: (snapshot: Snapshot) => void): Disposable {
    this.#listeners.add(listener);
    return { [Symbol.dispose]: () => void this.#listeners.delete(listener) };
  }

  refresh(): void {
    this.refreshes += 1;
  }
}

/** Records the reported evidence. */
export class EvidenceLog implements Evidence {
  readonly lines: string[] = [];

  dialSucceeded(uplink: string, destination: string): void {
    this.lines.push(`dialled ${uplink} ${destination}`);
  }

  dialFailed(uplink: string, destination: string, failure: DialFailure): void {
    this.lines.push(`failed ${uplink} ${destination} ${failure}`);
  }

  firstByte(uplink: string, destination: string): void {
    this.lines.push(`first-byte ${uplink} ${destination}`);
  }

  bytesReceived(uplink: string): void {
    this.lines.push(`bytes ${uplink}`);
  }

  blackholed(uplink: string, destination: string): void {
    this.lines.push(`blackholed ${uplink} ${destination}`);
  }

  stalled(uplink: string, destination: string): void {
    this.lines.push(`stalled ${uplink} ${destination}`);
  }
}

/** The listener for host processes at a port of loopback. */
export function hostListener(port: number, fields: Partial<ListenerSettings> = {}): ListenerSettings {
  return {
    name: "host",
    role: "host",
    address: IpAddress.parse("127.0.0.1"),
    port,
    assignAddress: false,
    auth: "none",
    tls: "off",
    allowedPorts: [443, 5000, 8443],
    ...fields,
  };
}

/** A listener of loopback whose clients are descriptors; it ends with the test. */
export function listenerFor(
  t: TestContext,
  onClient: (fd: number, remote: Endpoint) => void,
): { readonly port: number } {
  const fd = listenTcp(IpAddress.parse("127.0.0.1"), 0, { noDelay: true });
  const { port } = localEndpoint(fd);
  const fail = (error: Error): void => {
    throw error;
  };
  const listener = new TcpListener(fd, { onClient, onFault: fail, onError: fail });
  t.after(() => listener.close());
  return { port };
}

/** Default settings with loopback allowed, so that tests can have destinations. */
export function settingsOf(fields: Partial<Settings> = {}): Settings {
  return { ...DEFAULT_SETTINGS, maxCost: 255, allowLoopback: true, listeners: [], ...fields };
}

/** A TCP server of loopback for one test, half-closable, with all its clients. */
export async function serverFor(
  t: TestContext,
  onClient: (client: Socket) => void,
  address = "127.0.0.1",
): Promise<{ readonly port: number; readonly server: Server; readonly clients: Set<Socket> }> {
  const clients = new Set<Socket>();
  const server = createServer({ allowHalfOpen: true }, (client) => {
    clients.add(client);
    client.once("close", () => clients.delete(client));
    client.on("error", () => client.destroy());
    onClient(client);
  });
  server.listen(0, address);
  await once(server, "listening");
  t.after(() => {
    for (const client of clients) client.destroy();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, server, clients };
}

/** Collects the bytes that a test's client has read, and waits for them. */
export class TestClient {
  readonly socket: Socket;
  #text = "";
  #wake: (() => void) | undefined;
  isEnded = false;
  error: NodeJS.ErrnoException | undefined;
  isClosed = false;

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on("data", (chunk: Buffer) => this.#changed(() => (this.#text += chunk.toString("latin1"))));
    socket.on("end", () => this.#changed(() => (this.isEnded = true)));
    socket.on("error", (error) => this.#changed(() => (this.error = error)));
    socket.on("close", () => this.#changed(() => (this.isClosed = true)));
  }

  /** Connected to a port of loopback. */
  static async to(t: TestContext, port: number, host = "127.0.0.1"): Promise<TestClient> {
    const socket = connect({ port, host, allowHalfOpen: true });
    t.after(() => socket.destroy());
    await once(socket, "connect");
    return new TestClient(socket);
  }

  /** All received bytes, as a text with one character for each byte. */
  get text(): string {
    return this.#text;
  }

  write(text: string): void {
    this.socket.write(text, "latin1");
  }

  /** Resolves when the condition holds; the test's own timeout bounds it. */
  async until(condition: (client: this) => boolean): Promise<void> {
    while (!condition(this)) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Resolves with the received text once it contains the given text. */
  async read(text: string): Promise<string> {
    await this.until(() => this.#text.includes(text));
    return this.#text;
  }

  #changed(change: () => void): void {
    change();
    this.#wake?.();
  }
}

/** A ClientHello in one record, as simple as TLS 1.2 allows (RFC 5246 section 7.4.1.2). */
export function clientHello(
  serverName: string,
  options: { readonly hasEarlyData?: boolean; readonly paddingBytes?: number } = {},
): Buffer {
  const vector = (size: 1 | 2 | 3, ...content: readonly Uint8Array[]): Buffer => {
    const body = Buffer.concat(content);
    const length = Buffer.alloc(size);
    length.writeUIntBE(body.length, 0, size);
    return Buffer.concat([length, body]);
  };
  const name = Buffer.concat([Buffer.of(0), vector(2, Buffer.from(serverName, "latin1"))]);
  const extensions = [Buffer.of(0, 0), vector(2, vector(2, name))];
  if (options.hasEarlyData === true) extensions.push(Buffer.of(0, 42), vector(2));
  // RFC 7685.
  if (options.paddingBytes !== undefined)
    extensions.push(Buffer.of(0, 21), vector(2, Buffer.alloc(options.paddingBytes)));
  const body = [Buffer.of(3, 3), Buffer.alloc(32), vector(1), vector(2, Buffer.of(0x13, 1)), vector(1, Buffer.of(0))];
  const message = Buffer.concat([Buffer.of(1), vector(3, ...body, vector(2, ...extensions))]);
  return Buffer.concat([Buffer.of(22, 3, 1), vector(2, message)]);
}
