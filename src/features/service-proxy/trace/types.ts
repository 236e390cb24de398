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
  /** Interface that the packet comes in by; absent: this node sends the packet. */
  readonly inputInterface?: string;
}

/** The table and the host that a packet is traced through. */
export interface TraceContext {
  readonly chains: ReadonlyMap<string, Chain>;
  /** The elements of a set or map. */
  readonly lookup: (set: string, key: ByteString) => ElementValue | true | undefined;
  /** The service port of a front end, by the key of the element that was found. */
  readonly serviceOf: (set: string, key: ByteString) => string | undefined;
  /** Our bit of the packet mark. */
  readonly mark: number;
  /** Source ranges of a front end in `fw-allow`. */
  readonly allowed: (frontEnd: ByteString) => readonly Cidr[];
  readonly localAddresses: readonly IpAddress[];
  readonly serviceCIDRs: readonly Cidr[];
  /** Returns a number in [0, 1), which decides the slot. */
  readonly random?: () => number;
}

/** The outcome for the packet. */
export type Outcome =
  | {
      readonly kind: "delivered";
      /** The destination after translation; the packet's own destination if no rule changed it. */
      readonly destination: IpAddress;
      readonly port: number;
      readonly isTranslated: boolean;
      readonly isMasqueraded: boolean;
    }
  | { readonly kind: "dropped" }
  | { readonly kind: "rejected" };

/** One action of a rule that applied. */
export interface Step {
  readonly chain: string;
  readonly action: Action["kind"];
  /** The rule as nft(8) prints it. */
  readonly text: string;
  /** The element that the action found, or else the one that the rule's last set match found. */
  readonly element?: TracedElement;
}

/** An element of a set or map, as text. */
export interface TracedElement {
  readonly set: string;
  /** The element as nft(8) prints it: `10.96.0.10 . tcp . 80 : goto lb-2`. */
  readonly text: string;
  /** `namespace/name:port/protocol`, if it belongs to a service port. */
  readonly service?: string;
}

export interface Trace {
  readonly outcome: Outcome;
  readonly steps: readonly Step[];
  /** Number of slots from which one was drawn; 0: nothing was random. */
  readonly slots: number;
}
