/**
 * A tunnel between a client and a destination (docs/spec/uplink-proxy.md#7 and the relay's part of 6.4).
 *
 * Owns: passing bytes, half-close, back-pressure, silence, the end of both sockets. Does not know: uplinks, HTTP, who decided.
 *
 * ```ts
 * const upstream = await connectTcp({ address, port }, { source, signal });
 * const relay = new Relay(client, upstream, { timer, total }, limits, events);
 * relay.start(earlyPayload);
 * ```
 */

export { Relay } from "./relay.ts";
export type { ByteCount, CloseReason, RelayEnd, RelayEvents } from "./relay-options.ts";
export { RelayTimer } from "./relay-timer.ts";
export type { ReplayRule } from "./replay-buffer.ts";
