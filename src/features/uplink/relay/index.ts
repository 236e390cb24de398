/**
 * A tunnel between a client and a destination (spec uplink-proxy 7 and the relay's part of 6.4).
 *
 * Owns: passing bytes, half-close, back-pressure, silence, the end of both sockets. Refuses to know: uplinks, HTTP, who decided.
 *
 * ```ts
 * const upstream = Upstream.connect({ address, port }, pool); // wait for its socket's "connect"
 * const tunnel = new Tunnel(client, upstream, { watch, total }, limits, events);
 * tunnel.start(earlyBytes);
 * ```
 */
export { BufferPool } from "./buffer-pool.ts";
export { descriptorOf } from "./descriptor.ts";
export {
  type ByteCount,
  type CloseReason,
  Tunnel,
  type TunnelEnd,
  type TunnelEvents,
  type TunnelOptions,
} from "./tunnel.ts";
export { TunnelWatch } from "./tunnel-watch.ts";
export { Upstream, type UpstreamPath } from "./upstream.ts";
