import type { Cidr, IpFamily } from "#base/ip";

/** The action of a matching rule. */
export type RuleAction = "lookup" | "goto" | "nop" | "blackhole" | "unreachable" | "prohibit";

/** A policy rule, which chooses the routing table for a packet. */
export interface Rule {
  readonly family: IpFamily;
  /** Rules with a lower number are checked first. */
  readonly priority: number;
  /** The table of the action `lookup`; 0 for the other actions. */
  readonly table: number;
  readonly action: RuleAction;
  readonly fwmark?: number;
  /** The bits of the mark that are compared; absent: all bits. */
  readonly fwmask?: number;
  readonly from?: Cidr;
  readonly to?: Cidr;
  readonly iif?: string;
  readonly oif?: string;
  /** True if the rule applies to packets that do not match (`not`). */
  readonly invert?: boolean;
  /** The lookup ignores routes with this prefix length or a shorter one. */
  readonly suppressPrefixLength?: number;
  /** The origin, as in routes. Absent: unspecified. */
  readonly protocol?: number;
  /** For the action `goto`: the priority of the next rule. */
  readonly goto?: number;
}

/** A rule to add or to delete. The default action is `lookup`; a deletion matches all given values. */
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
  /** Lists the rules in the order in which the kernel checks them. */
  list(family: IpFamily): Rule[];
  /**
   * Throws `already-exists` if the same rule exists, whatever its protocol is. `besideEqual`: adds it all the same, so that a rule can be
   * replaced by one of another protocol without a gap.
   */
  add(spec: RuleSpec, options?: { readonly besideEqual?: boolean }): void;
  /** Deletes the first rule that matches. Throws `not-found` if none does. */
  delete(spec: RuleSpec): void;
}
