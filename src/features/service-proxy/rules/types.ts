import type { Cidr, IpFamily } from "#base/ip";
import type { NftBase } from "#kernel/nft";
import type { Protocol } from "../model/index.ts";

/** A part of a key of a set or map. The object is a random number below `slots`. */
export type KeyPart = "saddr" | "daddr" | "protocol" | "dport" | { readonly slots: number };

/** A condition of a rule. All matches of a rule must hold. */
export type Match =
  /** A packet of a connection that has no answer yet. Of UDP that nobody answers, as of a tunnel, each packet is. */
  | { readonly kind: "new" }
  /** The first packet of a connection; with `not`, every later one. */
  | { readonly kind: "first"; readonly not?: boolean }
  /** The packet's destination was translated; with `not`, it was not. */
  | { readonly kind: "dnat"; readonly not?: boolean }
  /** The packet's mark has our bit. */
  | { readonly kind: "marked" }
  | { readonly kind: "protocol"; readonly protocols: readonly Protocol[] }
  /** The address is one of this host's; with `not`, it is not one of this host's. */
  | { readonly kind: "local"; readonly part: "saddr" | "daddr"; readonly not?: boolean }
  /** The destination is not a loopback address. */
  | { readonly kind: "no-loopback" }
  /** The packet comes from a pod; with `not`, it does not come from a pod. */
  | { readonly kind: "pod"; readonly detector: PodDetector; readonly not?: boolean }
  | { readonly kind: "in"; readonly set: string; readonly key: readonly KeyPart[]; readonly not?: boolean };

/** The way in which packets of pods are recognized (docs/spec/service-proxy.md#2.10). */
export type PodDetector =
  | { readonly kind: "source"; readonly cidr: Cidr }
  | { readonly kind: "interface"; readonly name: string }
  | { readonly kind: "interface-prefix"; readonly prefix: string };

/** An action of a rule. `map` and `dnat` do nothing if the key is not in the map. */
export type Action =
  | { readonly kind: "goto" | "jump"; readonly chain: string }
  | { readonly kind: "map"; readonly map: string; readonly key: readonly KeyPart[] }
  | { readonly kind: "dnat"; readonly map: string; readonly key: readonly KeyPart[] }
  /** Ends the walk through a base chain; the packet goes on to those of other priorities. */
  | { readonly kind: "accept" }
  | { readonly kind: "mark" | "unmark" | "masquerade" | "drop" }
  /** TCP gets a reset, which IPv6 clients too notice at once (docs/spec/service-proxy.md#K6a); other protocols get port unreachable. */
  | { readonly kind: "reject"; readonly with: "tcp-reset" | "port-unreachable" }
  /** Translates to the endpoint that the client's last connection to this service port got, by whichever of its front ends. */
  | { readonly kind: "recall"; readonly isNodePort: boolean }
  /** Records the client's endpoint, if the front end has affinity of `seconds`. */
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

/** Options of the rules of one family. */
export interface RuleOptions {
  readonly family: IpFamily;
  /** One bit of the packet mark. */
  readonly mark: number;
  /** `undefined`: packets of pods cannot be recognized. */
  readonly detector: PodDetector | undefined;
  readonly masqueradeAll: boolean;
  /** `set`: the addresses in the set `nodeport-ips` take NodePorts. `all-local`: all addresses of the host but loopback. */
  readonly nodePortAddresses: "set" | "all-local";
  /** Maximum of clients that affinity remembers. Default: `AFFINITY_ENTRIES`. */
  readonly affinityEntries?: number;
}
