import type { Cidr, IpFamily } from "#base/ip";
import type { NftBase } from "#kernel/nft";
import type { Protocol } from "../model/index.ts";

/** What a key of a set or map is made of. `slot`: a random number below `slots`. */
export type KeyPart = "saddr" | "daddr" | "protocol" | "dport" | { readonly slots: number };

/** What a rule asks of a packet. All matches of a rule must hold. */
export type Match =
  /** The first packet of a connection. */
  | { readonly kind: "new" }
  /** Its destination was translated. */
  | { readonly kind: "dnat" }
  /** It has our bit. */
  | { readonly kind: "marked" }
  | { readonly kind: "protocol"; readonly protocols: readonly Protocol[] }
  /** The address is, or with `not` is not, one of this host's. */
  | { readonly kind: "local"; readonly part: "saddr" | "daddr"; readonly not?: boolean }
  /** The destination is no loopback address. */
  | { readonly kind: "no-loopback" }
  /** From a pod, or with `not` from somebody else. */
  | { readonly kind: "pod"; readonly detector: PodDetector; readonly not?: boolean }
  | { readonly kind: "in"; readonly set: string; readonly key: readonly KeyPart[]; readonly not?: boolean };

/** How a pod's packet is known (docs/spec/service-proxy.md#2.10). */
export type PodDetector =
  | { readonly kind: "source"; readonly cidr: Cidr }
  | { readonly kind: "interface"; readonly name: string }
  | { readonly kind: "interface-prefix"; readonly prefix: string };

/** What a rule does. `map` and `dnat` do nothing where the key is not in the map. */
export type Action =
  | { readonly kind: "goto" | "jump"; readonly chain: string }
  | { readonly kind: "map"; readonly map: string; readonly key: readonly KeyPart[] }
  | { readonly kind: "dnat"; readonly map: string; readonly key: readonly KeyPart[] }
  | { readonly kind: "mark" | "unmark" | "masquerade" | "drop" }
  /** TCP: a reset, which clients of IPv6 notice at once too (docs/spec/service-proxy.md#K6a); else port unreachable. */
  | { readonly kind: "reject"; readonly with: "tcp-reset" | "port-unreachable" }
  /** Where the connection came in at a front end with affinity of so many seconds: remembers which endpoint the client got. */
  | { readonly kind: "remember"; readonly seconds: number; readonly isNodePort: boolean };

export interface Rule {
  readonly matches: readonly Match[];
  readonly actions: readonly Action[];
}

export interface Chain {
  readonly name: string;
  readonly base?: NftBase;
  readonly rules: readonly Rule[];
}

/** What the rules of one family depend on. */
export interface RuleOptions {
  readonly family: IpFamily;
  /** Masks the packet mark: one bit. */
  readonly mark: number;
  /** `undefined`: pods cannot be told from others. */
  readonly detector: PodDetector | undefined;
  readonly masqueradeAll: boolean;
  /** NodePorts are taken on the addresses of set `nodeport-ips`; else on all of the host's but loopback. */
  readonly nodePortAddresses: "set" | "all-local";
}
