import type { Cidr, IpAddress } from "#base/ip";
import type { ByteString, ElementValue } from "#kernel/nft-elements";
import type { Protocol } from "../model/index.ts";
import type { Action, Chain } from "../rules/index.ts";

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
export interface TraceContext {
  readonly chains: ReadonlyMap<string, Chain>;
  /** The elements of a set or map. */
  readonly lookup: (set: string, key: ByteString) => ElementValue | true | undefined;
  /** The service port that a front end belongs to, by the key of the element that was found. */
  readonly serviceOf: (set: string, key: ByteString) => string | undefined;
  /** The packet mark's one bit, as rules print it. */
  readonly mark: number;
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

/** One action of a rule that applied, for people. */
export interface Step {
  readonly chain: string;
  readonly action: Action["kind"];
  /** The rule as nft(8) prints it. */
  readonly text: string;
  /** The element that the action found; else the one that the rule's last look into a set found. */
  readonly element?: TracedElement;
}

/** An element of a set or map, for people. */
export interface TracedElement {
  readonly set: string;
  /** As nft(8) prints it: `10.96.0.10 . tcp . 80 : goto lb-2`. */
  readonly text: string;
  /** `namespace/name:port/protocol`, where it is of a service port. */
  readonly service?: string;
}

export interface Trace {
  readonly outcome: Outcome;
  readonly steps: readonly Step[];
  /** Among how many slots one was drawn; 0: nothing was left to chance. */
  readonly slots: number;
}
