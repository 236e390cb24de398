import type { Cidr, IpFamily } from "#base/ip";

/** The action of a matching rule. */
export type RuleAction = "lookup" | "goto" | "nop" | "blackhole" | "unreachable" | "prohibit";

/** A policy rule: which table a packet is looked up in. */
export interface Rule {
  readonly family: IpFamily;
  /** Rules with a lower number are checked first. */
  readonly priority: number;
  /** For `lookup`; 0 for the other actions. */
  readonly table: number;
  readonly action: RuleAction;
  readonly fwmark?: number;
  /** Which bits of the mark count; absent for all. */
  readonly fwmask?: number;
  readonly from?: Cidr;
  readonly to?: Cidr;
  readonly iif?: string;
  readonly oif?: string;
  /** The match is turned round (`not`). */
  readonly invert?: boolean;
  /** Routes with this prefix length or a shorter one do not count. */
  readonly suppressPrefixLength?: number;
  /** The origin, as in routes. Absent: unspecified. */
  readonly protocol?: number;
  /** For `goto`: the priority to go on from. */
  readonly goto?: number;
}

/** A rule to add or to delete. The action is `lookup` unless given; deleting matches all that is given. */
export interface RuleSpec {
  readonly family: IpFamily;
  readonly priority: number;
  readonly table?: number | undefined;
  readonly action?: RuleAction | undefined;
  readonly fwmark?: number | undefined;
  readonly fwmask?: number | undefined;
  readonly from?: Cidr | undefined;
  readonly to?: Cidr | undefined;
  readonly iif?: string | undefined;
  readonly oif?: string | undefined;
  readonly invert?: boolean | undefined;
  readonly suppressPrefixLength?: number | undefined;
  readonly protocol?: number | undefined;
  readonly goto?: number | undefined;
}

/** The policy rules of one namespace. Every method throws {@link KernelError} and takes some 10 µs. */
export interface RulePort {
  /** In the order in which the kernel checks them. */
  list(family: IpFamily): Rule[];
  /** Throws `already-exists` when the same rule is there. */
  add(spec: RuleSpec): void;
  /** Deletes the first rule that matches. Throws `not-found` if none does. */
  delete(spec: RuleSpec): void;
}
