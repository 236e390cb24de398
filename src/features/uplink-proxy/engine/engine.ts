import { Socket } from "node:net";
import { networkInterfaces } from "node:os";
import type { SecureContext } from "node:tls";
import { type ByteStream, NodeStream, type TransportState } from "#base/byte-stream";
import type { Clock } from "#base/clock";
import { LinkedSet } from "#base/collections";
import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import type { Evidence, ListenerSettings, Settings, SnapshotSource, Uplink } from "#base/uplink-model";
import type { TcpStreams } from "#kernel/reactor";
import { type Endpoint, transportState } from "#kernel/socket";
import { type Query, UplinkDns } from "../dns/index.ts";
import {
  HttpConnection,
  type HttpConnectionDeps,
  PendingHeads,
  type TunnelLimiter,
  TunnelService,
} from "../front/index.ts";
import { plainHttp } from "../plain-http/index.ts";
import { ClientLimits } from "../policy/index.ts";
import { type CloseReason, RelayTimer } from "../relay/index.ts";
import { connectUpstream, Dialler, Penalties, Rotation, SegmentSizes } from "../select/index.ts";
import { LogLines, type Recorder, Traffic } from "../stats/index.ts";
import { TransparentConnection } from "../transparent/index.ts";
import { passTlsGate } from "./tls-gate.ts";

/** Dependencies of one thread of the proxy. */
export interface EngineDeps {
  readonly clock: Clock;
  readonly log: Logger;
  /** Read again for each request. */
  readonly settings: () => Settings;
  readonly snapshots: Pick<SnapshotSource, "current" | "refresh">;
  readonly evidence: Evidence;
  readonly record: Recorder;
  readonly limiter: TunnelLimiter;
  /** The tokens that the listener for pods accepts now; `undefined` until they are loaded. */
  readonly tokens: () => readonly string[] | undefined;
  /** The TLS context of the listener for pods; `undefined` until there is a certificate. */
  readonly secureContext: () => SecureContext | undefined;
  /** The body of GET /healthz. */
  readonly healthz: () => Promise<string>;
  /** The answer of GET /readyz. */
  readonly readyz: HttpConnectionDeps["readyz"];
  /** The body of GET /metrics. */
  readonly metrics: () => Promise<string>;
  /** The implementation of connections of clients and to destinations. */
  readonly streams: TcpStreams;
  /** SO_MARK of sockets to destinations. */
  readonly mark?: number | undefined;
  /** Called with an error that is a bug; the program must end. */
  readonly onBug: (error: unknown) => void;
  /** Default: c-ares. */
  readonly query?: Query | undefined;
  /** Default: /etc/hosts. */
  readonly hostsPath?: string | undefined;
}

/** Serves the clients of one thread. */
export class Engine {
  readonly penalties: Penalties;
  readonly dns: UplinkDns;
  readonly #deps: EngineDeps;
  readonly #tunnelService: TunnelService;
  readonly #dialler: Dialler<ByteStream>;
  /** Dependencies of connections of the host's listeners. */
  readonly #front: HttpConnectionDeps;
  /** Dependencies of connections of the pods' listener. Its idle clients are counted apart, so that pods cannot displace host clients. */
  readonly #podFront: HttpConnectionDeps;
  readonly #traffic = new Traffic();
  readonly #connections = new LinkedSet<{ destroy(): void }>();
  #isDraining = false;
  /** Uplinks that had their link in the last snapshot. */
  #wereUp: ReadonlySet<string> = new Set();
  /** For each uplink that has lost its link, the function that cancels the end of its tunnels. */
  readonly #graces = new Map<string, () => void>();

  constructor(deps: EngineDeps) {
    this.#deps = deps;
    const { clock, settings, snapshots, evidence, log } = deps;
    const limits = () => settings().limits;
    this.penalties = new Penalties(clock, settings().selection);
    this.dns = new UplinkDns({
      clock,
      settings: () => settings().dns,
      ...(deps.query === undefined ? {} : { query: deps.query }),
      ...(deps.hostsPath === undefined ? {} : { hostsPath: deps.hostsPath }),
    });
    const rotation = new Rotation();
    const segments = new SegmentSizes(clock);
    this.#dialler = new Dialler<ByteStream>({
      clock,
      dns: this.dns,
      penalties: this.penalties,
      rotation,
      evidence,
      settings: () => settings().selection,
      segments,
      connect: (pair, port, { signal, maxSegmentBytes }) => {
        deps.limiter.descriptors.opened(1);
        return connectUpstream(pair, port, {
          signal,
          streams: deps.streams,
          mark: deps.mark,
          readBytes: this.#readBytes,
          maxSegmentBytes,
        });
      },
      rttMs: (connection) => connection.transport?.()?.rttMs,
      hasAddress,
      failedLate: (target, failure) => deps.record({ kind: "attempts", target, failures: [failure] }),
      refresh: () => snapshots.refresh(),
    });
    this.#wereUp = new Set(snapshots.current.uplinks.filter(({ isUp }) => isUp).map(({ name }) => name));
    const { limiter, record, onBug } = deps;
    const timer = new RelayTimer(clock);
    const lines = new LogLines(log, clock);
    const shared = { clock, settings, snapshots, evidence, limiter, record, onBug };
    const { penalties } = this;
    this.#tunnelService = new TunnelService({
      ...shared,
      dialler: this.#dialler,
      penalties,
      rotation,
      segments,
      timer,
      traffic: this.#traffic,
      lines,
    });
    const { tokens, healthz, readyz, metrics } = deps;
    const front = {
      clock,
      settings,
      record,
      onBug,
      lines,
      tokens,
      healthz,
      readyz,
      metrics,
      plainHttp,
      tunnelService: this.#tunnelService,
      clients: new ClientLimits(clock, limits),
      isDraining: () => this.#isDraining,
    };
    this.#front = { ...front, pending: new PendingHeads(() => limits().pendingHeaders) };
    this.#podFront = { ...front, pending: new PendingHeads(() => limits().pendingHeaders) };
  }

  /**
   * Near the limit of descriptors, each new client displaces the client that has waited longest without a complete request, so that a
   * descriptor is always left for an answer. Clients of pods are displaced before clients of the host.
   */
  #evictWhenShort(): void {
    const { descriptors } = this.#deps.limiter;
    descriptors.opened(1);
    if (descriptors.areShort && !this.#podFront.pending.evictOldest()) this.#front.pending.evictOldest();
  }

  /** Tunnels of this thread. */
  get tunnels(): number {
    return this.#tunnelService.size;
  }

  /** Serves a client. The engine owns the connected descriptor `fd` from now on. */
  accept(fd: number, remote: Endpoint, listener: ListenerSettings): void {
    this.#evictWhenShort();
    if (this.#connections.size >= MAX_CLIENTS) this.#deps.streams.adopt(fd, remote).reset();
    else if (listener.tls !== "off") this.#acceptTls(fd, listener);
    else {
      const client = this.#deps.streams.adopt(fd, remote, { readBytes: HEAD_READ_BYTES });
      const entry = this.#connections.add(client);
      client.on("close", () => entry.remove());
      if (listener.role !== "transparent") this.#serve(client, listener);
      else new TransparentConnection(client, listener, this.#tunnelService, this.#deps).run().catch(this.#deps.onBug);
    }
  }

  /**
   * The state of the uplinks has changed. Ends tunnels whose source address or uplink was removed, and dials over uplinks that have lost their
   * link. Tunnels over these end after `tunnel.linkGraceMs`, unless the link is back: TCP survives a short loss of the carrier.
   */
  snapshotChanged(): void {
    const { current } = this.#deps.snapshots;
    const { localAddresses, uplinks } = current;
    this.#dialler.snapshotChanged(current);
    const known = new Set(localAddresses.map((address) => address.toString()));
    // A configured address may be missing on the host.
    const usable = uplinks.flatMap(({ addresses }) => addresses.filter(({ isUsable }) => isUsable));
    for (const { address } of usable) known.add(address.toString());
    // If another program manages routing, it is responsible for the routes of an address.
    const { manage } = this.#deps.settings().routing;
    const byName = new Map(uplinks.map((uplink) => [uplink.name, uplink]));
    for (const { name, isUp } of uplinks) if (!isUp && this.#wereUp.has(name)) this.#startGrace(name);
    this.#wereUp = new Set(uplinks.filter(({ isUp }) => isUp).map(({ name }) => name));
    for (const name of this.#graces.keys()) if (this.#wereUp.has(name) || !byName.has(name)) this.#endGrace(name);
    this.#tunnelService.closeLost((source, name) => {
      if (!known.has(source) && !hasAddressText(source)) return true;
      if (name === undefined) return false;
      const uplink = byName.get(name);
      return uplink === undefined || (manage && !hasSource(uplink, source));
    });
  }

  #startGrace(uplink: string): void {
    this.#endGrace(uplink);
    const end = (): void => {
      this.#graces.delete(uplink);
      this.#tunnelService.closeLost((_source, name) => name === uplink);
    };
    const { clock, settings } = this.#deps;
    this.#graces.set(uplink, clock.after(settings().tunnel.linkGraceMs, end, { unref: true }));
  }

  #endGrace(uplink: string): void {
    this.#graces.get(uplink)?.();
    this.#graces.delete(uplink);
  }

  settingsChanged(): void {
    this.penalties.configure(this.#deps.settings().selection);
  }

  /** Reports the bytes since the last call. */
  flush(): void {
    this.#traffic.flush(this.#deps.record);
  }

  /** Refuses requests from now on, also on kept connections; tunnels continue. */
  beginDrain(): void {
    this.#isDraining = true;
  }

  /** Ends all clients and tunnels. */
  close(reason: CloseReason): void {
    for (const name of this.#graces.keys()) this.#endGrace(name);
    this.#tunnelService.closeAll(reason);
    for (const connection of this.#connections) connection.destroy();
  }

  /** Accepts a client over Node.js's sockets, because Node.js terminates TLS only for its own sockets. */
  #acceptTls(fd: number, listener: ListenerSettings): void {
    const client = new Socket({ fd, allowHalfOpen: true });
    client.on("error", () => client.destroy());
    const entry = this.#connections.add(client);
    client.on("close", () => entry.remove());
    const { clock, secureContext, settings } = this.#deps;
    const timeoutMs = settings().limits.headerTimeoutMs;
    const isRequired = listener.tls === "required";
    const gate = { isRequired, clock, timeoutMs, context: secureContext(), pending: this.#frontOf(listener).pending };
    const transport = (): TransportState | undefined => (client.destroyed ? undefined : transportState(fd));
    passTlsGate(client, gate, (inner, first) => this.#serve(new NodeStream(inner, { transport }), listener, first));
  }

  /** One direction of a tunnel holds at most one read. */
  get #readBytes(): number {
    return this.#deps.settings().tunnel.bufferBytes;
  }

  #frontOf({ role }: ListenerSettings): HttpConnectionDeps {
    return role === "pod" ? this.#podFront : this.#front;
  }

  #serve(client: ByteStream, listener: ListenerSettings, first?: Uint8Array): void {
    new HttpConnection(client, listener, this.#frontOf(listener)).start(first);
  }
}

/** One read of a client that has no tunnel yet: a head is not longer, and the bytes after the head are kept. */
const HEAD_READ_BYTES = 65_536;
/** Maximum number of clients of one thread; a further client is reset. More than the sum of all other limits. */
const MAX_CLIENTS = 16_384;

/**
 * Returns true if the uplink still has the address. If the address has moved to another uplink, packets would leave over that uplink, which may
 * cost too much.
 */
function hasSource({ addresses }: Uplink, source: string): boolean {
  return addresses.some(({ address }) => address.toString() === source);
}

/** Returns true if the kernel has the address now. The snapshot may be older. */
function hasAddress(address: IpAddress): boolean {
  return hasAddressText(address.toString());
}

function hasAddressText(text: string): boolean {
  return Object.values(networkInterfaces()).some(
    (entries) => entries?.some(({ address }) => address === text) === true,
  );
}
