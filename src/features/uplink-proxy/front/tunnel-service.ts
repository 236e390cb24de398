import type { ByteStream } from "#base/byte-stream";
import { LinkedSet } from "#base/collections";
import type { CloseReason } from "../relay/index.ts";
import { type DialResult, SelectError } from "../select/index.ts";
import { DIRECT } from "../stats/index.ts";
import { clientName } from "./client-name.ts";
import { dialRequestFor, type TunnelDeps, type TunnelRequest } from "./tunnel-request.ts";
import { UplinkTunnel } from "./uplink-tunnel.ts";

/** The result of a request. After `opened` the tunnel owns the client's socket; after other results the early payload is still held. */
export type TunnelResult =
  | { readonly kind: "opened"; readonly tunnel: Pick<UplinkTunnel, "close"> }
  | { readonly kind: "overload" }
  /** The client has left. */
  | { readonly kind: "gone" }
  | { readonly kind: "failed"; readonly error: SelectError };

/** Opens tunnels for clients: finds an uplink, relays bytes, and replays them over another uplink after a blackhole. */
export class TunnelService {
  readonly #deps: TunnelDeps;
  readonly #tunnels = new LinkedSet<UplinkTunnel>();

  constructor(deps: TunnelDeps) {
    this.#deps = deps;
  }

  /** Tunnels of this thread. */
  get size(): number {
    return this.#tunnels.size;
  }

  /** Opens a tunnel. Rejects only because of a bug. */
  async open(request: TunnelRequest): Promise<TunnelResult> {
    const { limiter, dialler, record } = this.#deps;
    if (!limiter.tryTake()) {
      record({ kind: "overload" });
      return { kind: "overload" };
    }
    let isOpened = false;
    try {
      const won = await dialler.dial(dialRequestFor(request, request.early.gone, this.#deps));
      if (request.early.gone.aborted) {
        won.trial?.end();
        won.connection.destroy();
        return { kind: "gone" };
      }
      const tunnel = this.#begin(request, won);
      isOpened = true;
      return { kind: "opened", tunnel };
    } catch (error) {
      if (request.early.gone.aborted) return { kind: "gone" };
      if (!(error instanceof SelectError)) throw error;
      this.#failed(request, error);
      return { kind: "failed", error };
    } finally {
      limiter.dialled();
      if (!isOpened) limiter.giveBack();
    }
  }

  /** Ends all tunnels. */
  closeAll(reason: CloseReason): void {
    for (const tunnel of this.#tunnels) tunnel.close(reason);
  }

  /** Ends tunnels whose source address this host, or whose uplink, no longer has: they cannot recover (docs/spec/uplink-proxy.md#7). */
  closeLost(isLost: (source: string, uplink: string | undefined) => boolean): void {
    for (const tunnel of this.#tunnels) {
      if (tunnel.source !== undefined && isLost(tunnel.source, tunnel.uplink)) tunnel.close("error");
    }
  }

  #begin(request: TunnelRequest, won: DialResult<ByteStream>): UplinkTunnel {
    const { clock, record, lines } = this.#deps;
    // This comes first, so that the client can continue during the bookkeeping.
    request.onConnected();
    const dialMs = clock.monotonic() - request.startedAt;
    const { ifName, cost } = won.uplink ?? { ifName: DIRECT, cost: 0 };
    const target = request.destination.text;
    record({ kind: "connected", target, ifName, cost, failures: won.failures, count: 1 });
    lines.connected(() => ({
      target,
      client: clientName(request.client),
      ifName,
      source: won.source?.toString() ?? won.connection.localAddress,
      cost,
      dialMs,
      fallbacks: won.failures.length,
    }));
    if (won.nameFrom !== undefined) lines.nearName(target, won.address.toString(), won.nameFrom);
    const tunnel = new UplinkTunnel(this.#deps, request, won, this.#tunnels);
    tunnel.start(request.early.release());
    return tunnel;
  }

  #failed(request: TunnelRequest, error: SelectError): void {
    const { clock, record, lines } = this.#deps;
    const target = request.destination.text;
    const afterMs = clock.monotonic() - request.startedAt;
    const { message: summary, failures, code } = error;
    // A refusal by policy does not count as a failed dial.
    if (code === "denied") record({ kind: "denied" });
    else record({ kind: "failed", target, isNotReady: code === "not-ready", summary, failures });
    lines.failed(target, clientName(request.client), afterMs, summary);
  }
}
