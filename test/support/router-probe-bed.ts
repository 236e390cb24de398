/** Routers of an Egress and their clients without a network. */
import { FakeClock } from "#base/clock";
import { Cidr, IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { type ConntrackEntry, FakeConntrack } from "#kernel/conntrack";
import { KernelError } from "#kernel/errors";
import type { ClientRouter, Gateway } from "../../src/features/egress/client/index.ts";
import { ClientRouters } from "../../src/features/egress/node/client-routers.ts";
import type { OnDatagram } from "../../src/features/egress/node/probe-socket.ts";
import { encodeProbe, probePort } from "../../src/features/egress/probe/index.ts";
import { vxlanDriver } from "../../src/features/egress/tunnel/index.ts";

/** Parses an address. */
export const ip = IpAddress.parse;
/** UDP port of the tunnels. */
export const PORT = 5555;
/** The Egress of the tests. */
export const EGRESS = { namespace: "internet", name: "nat" };
/** {@link EGRESS} as `namespace/name`. */
export const KEY = "internet/nat";
/** The address of the Egress's Service. */
export const SERVICE = ip("10.68.0.9");

/** A router of {@link EGRESS}. */
export const router = (name: string, address: string, isReady = true): ClientRouter => ({
  metadata: { name, namespace: "internet", uid: `uid-${name}`, resourceVersion: "1" },
  egress: KEY,
  addresses: [ip(address)],
  isReady,
  isEnding: false,
});
/** A gateway to all of IPv4. */
export const gateway = (egress = EGRESS, address = SERVICE): Gateway => ({
  egress,
  address,
  destinations: [Cidr.parse("0.0.0.0/0")],
  sourcePortAuto: true,
  originatingOnly: false,
});

/** Clients and routers without a network: each probe has an answer unless its router is down. */
export class RouterProbeBed implements Disposable {
  readonly clock = new FakeClock();
  readonly routers: ClientRouter[] = [router("a", "10.64.0.8"), router("b", "10.64.1.8"), router("c", "10.64.2.8")];
  /** Addresses of routers that answer nothing. */
  readonly down = new Set<string>();
  /** Addresses of routers whose kernel refuses probes, as without a process. */
  readonly away = new Set<string>();
  /** Addresses of clients from which nothing can be sent. */
  readonly broken = new Set<string>();
  /** Addresses of clients whose open sockets have failed. */
  readonly failed = new Set<string>();
  readonly sent: { readonly from: string; readonly to: string }[] = [];
  readonly changes: string[] = [];
  health = "ok";
  onSent: (from: string, token: string) => void = () => undefined;
  /** Addresses of clients that get no answers, and of those that make all answers themselves. */
  readonly deaf = new Set<string>();
  readonly forging = new Set<string>();
  /** Listings and deletions of connection tracking so far. */
  readings = 0;
  /** A listing of connection tracking lasts until this is resolved. */
  reading: PromiseWithResolvers<void> | undefined;
  readonly conntrack = new FakeConntrack();
  readonly routersOfClients: ClientRouters;
  open = 0;
  readonly #controller = new AbortController();
  readonly #running: Promise<void>;

  constructor(flows: readonly ConntrackEntry[] = []) {
    this.conntrack.entries.push(...flows);
    this.routersOfClients = new ClientRouters(
      {
        routersOf: (egress) => this.routers.filter((one) => one.egress === egress),
        openSocket: (_place, address, onDatagram) => this.#socket(address, onDatagram),
        // The flows outlive the port.
        openConntrack: () => ({
          list: (filter) => this.conntrack.list(filter),
          listInSlices: async (filter, options) => {
            this.readings += 1;
            await this.reading?.promise;
            options?.signal?.throwIfAborted();
            return this.conntrack.listInSlices(filter);
          },
          delete: (filter, when) => {
            this.readings += 1;
            return this.conntrack.delete(filter, when);
          },
          clearMarks: (filter) => this.conntrack.clearMarks(filter),
          [Symbol.dispose]: () => undefined,
        }),
        onChange: (egress) => void this.changes.push(egress),
        health: {
          ok: () => {
            this.health = "ok";
          },
          degraded: (error) => {
            this.health = String(error);
          },
        },
        log: nullLogger,
        clock: this.clock,
      },
      { port: PORT },
    );
    this.#running = this.routersOfClients.run({ signal: this.#controller.signal });
  }

  #socket(client: IpAddress, onDatagram: OnDatagram) {
    if (this.broken.has(String(client))) throw new KernelError("not-found", "no such address");
    this.open += 1;
    const { failed } = this;
    return {
      port: 40_000,
      get isOpen() {
        return !failed.has(String(client));
      },
      send: (bytes: Buffer, { address }: { readonly address: IpAddress }) => {
        this.sent.push({ from: String(client), to: String(address) });
        this.onSent(String(client), bytes.subarray(-16).toString("hex"));
        if (this.down.has(String(address)) && !this.forging.has(String(client))) return;
        if (this.deaf.has(String(client))) return;
        const token = bytes.subarray(-16).toString("hex");
        if (this.away.has(String(address))) {
          const isRefused = { address: String(address), port: probePort(PORT), isRefused: true };
          this.clock.after(2, () => onDatagram(encodeProbe({ kind: "question", token }), isRefused));
          return;
        }
        const from = { address: String(address), port: probePort(PORT) };
        this.clock.after(2, () => onDatagram(encodeProbe({ kind: "answer", token }), from));
      },
      [Symbol.dispose]: () => {
        this.open -= 1;
      },
    };
  }

  /** A pod with one Egress. */
  use(uid: string, address: string, { namespace = "default", gateways = [gateway()] } = {}): void {
    const place = { path: `/run/netns/${uid}`, inode: 1n, ifname: "eth0", addresses: { 4: ip(address) } };
    this.routersOfClients.use(uid, { namespace, place, driver: vxlanDriver, gateways });
  }

  /** Returns the remote end of the tunnel of a pod. */
  remote(uid: string, one = gateway()): string {
    return String(this.routersOfClients.redirect(uid, [one])[0]?.address);
  }

  async stop(): Promise<void> {
    this.#controller.abort();
    await this.clock.advance(1);
    await this.#running;
  }

  [Symbol.dispose](): void {
    this.#controller.abort();
  }
}

/** A flow of tunnels in connection tracking. */
export const flow = (client: string, to: string): ConntrackEntry => ({
  family: 4,
  protocol: 17,
  original: { src: ip(client), dst: SERVICE, srcPort: 30_000, dstPort: PORT },
  reply: { src: ip(to), dst: ip(client), srcPort: PORT, dstPort: 30_000 },
  mark: 0,
});
