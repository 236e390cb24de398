/**
 * A tunnel between a client and a destination (docs/spec/uplink-proxy.md#7 and the relay's part of 6.4).
 *
 * Owns: passing bytes, half-close, back-pressure, silence, the end of both sockets. Refuses to know: uplinks, HTTP, who decided.
 *
 * ```ts
 * const upstream = await connectTcp({ address, port }, { source, signal });
 * const tunnel = new Tunnel(client, upstream, { watch, total }, limits, events);
 * tunnel.start(earlyBytes);
 * ```
 */
export type { ReplayRule } from "./replay-buffer.ts";
export {
  type ByteCount,
  type CloseReason,
  Tunnel,
  type TunnelEnd,
  type TunnelEvents,
  type TunnelOptions,
} from "./tunnel.ts";
export { TunnelWatch } from "./tunnel-watch.ts";
