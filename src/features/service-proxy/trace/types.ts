import type { Cidr, IpAddress } from "#base/ip";
import type { ByteString, ElementValue } from "#kernel/nft-elements";
import type { Protocol } from "../model/index.ts";
import type { Chain } from "../rules/index.ts";

/** The first packet of a connection. */
export interface Packet {
  readonly source: IpAddress;
  readonly destination: IpAddress;
  readonly protocol: Protocol;
  readonly port: number;
  /** The link that it comes in by; absent: this node sends it. */
  readonly inputInterface?: string;
}

/** What a walk needs to know of the host and the table. */
export interface World {
  readonly chains: ReadonlyMap<string, Chain>;
  /** The elements of a set or map. */
  readonly lookup: (set: string, key: ByteString) => ElementValue | true | undefined;
  /** Source ranges that `fw-allow` has for a front end. */
  readonly allowed: (frontEnd: ByteString) => readonly Cidr[];
  readonly localAddresses: readonly IpAddress[];
  readonly serviceCIDRs: readonly Cidr[];
  /** In [0, 1): which slot is drawn. */
  readonly random?: () => number;
}

/** Where the packet ends. */
export type Outcome =
  | {
      readonly kind: "delivered";
      /** After translation; the packet's own destination where none of ours changed it. */
      readonly destination: IpAddress;
      readonly port: number;
      readonly isTranslated: boolean;
      readonly isMasqueraded: boolean;
    }
  | { readonly kind: "dropped" }
  | { readonly kind: "rejected" };

/** One rule that applied, for people. */
export interface Step {
  readonly chain: string;
  readonly text: string;
}

export interface Trace {
  readonly outcome: Outcome;
  readonly steps: readonly Step[];
}
