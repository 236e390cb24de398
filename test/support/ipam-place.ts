import type { HookedClient, IpamWorld } from "#test/ipam-world";

/** The place in which a model of addresses runs: an API server, and a pool and Nodes of its own in it. */
export interface ModelPlace {
  readonly client: HookedClient;
  readonly known: IpamWorld["known"];
  readonly scene: Awaited<ReturnType<IpamWorld["scene"]>>;
  readonly options: { readonly signal: AbortSignal };
}
