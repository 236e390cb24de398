/** Extensions of this product that two peers negotiate (docs/spec/tunnel.md#9.1). */
export const CAPABILITIES = ["reverse/1", "half-close/1", "flow-control/1"] as const;
export type Capability = (typeof CAPABILITIES)[number];

/** Metadata keys of the tunnel, in lower case as on the wire (docs/spec/tunnel.md#2). */
export const MetadataKey = {
  agentID: "agentid",
  agentIdentifiers: "agentidentifiers",
  serverID: "serverid",
  serverCount: "servercount",
  capabilities: "x-tunnel-caps",
  dialTimeout: "x-tunnel-dial-timeout",
} as const;

/** The header value for what this side supports and has enabled. */
export function formatCapabilities(capabilities: ReadonlySet<Capability>): string {
  return CAPABILITIES.filter((one) => capabilities.has(one)).join(",");
}

/** The capabilities that both sides listed. Unknown tokens are ignored; an absent header (a Konnectivity peer) means none. */
export function sharedCapabilities(ours: ReadonlySet<Capability>, header: string | undefined): ReadonlySet<Capability> {
  const theirs = new Set((header ?? "").split(",", 32).map((token) => token.trim()));
  return new Set(CAPABILITIES.filter((one) => ours.has(one) && theirs.has(one)));
}
