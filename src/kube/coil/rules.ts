import type { SchemaRule } from "#kube/crd";

/** The rules of Coil's CRDs: those rules of its webhooks that an API server can check without a webhook. */

/** The maximum number of subnets, far above real use. An API server estimates the cost of rules from such limits. */
export const MAX_SUBNETS = 10_000;
/** The maximum length of the text of a CIDR; the longest IPv6 CIDR has 49 characters. */
export const MAX_CIDR_LENGTH = 64;
/** The bound on the text of a percentage. */
export const MAX_PERCENT_LENGTH = 64;

const FORBIDDEN = "FieldValueForbidden";

/** A value cannot be changed. */
export const UNCHANGEABLE: SchemaRule = { rule: "self == oldSelf", message: "unchangeable", reason: FORBIDDEN };

/** An optional member cannot be changed, added or removed; this is a rule of the object that contains it. */
export function unchangeableMember(name: string): SchemaRule {
  const [now, before] = [`self.${name}`, `oldSelf.${name}`];
  return {
    rule: `has(${now}) == has(${before}) && (!has(${now}) || ${now} == ${before})`,
    message: "unchangeable",
    reason: FORBIDDEN,
    fieldPath: `.${name}`,
  };
}

const DIGITS = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]";
const AT = "a * 1000 + b * 100 + c * 10 + d";

/**
 * Subnets can only be appended. CEL of Kubernetes 1.29 can neither iterate over the indexes of a list nor over two lists together, and a
 * search for each item in the whole list is too expensive for an API server. So the rule composes the indexes of {@link MAX_SUBNETS} items
 * from their decimal digits.
 */
export const APPEND_ONLY: readonly SchemaRule[] = [
  { rule: "self.size() >= oldSelf.size()", message: "unshrinkable", reason: FORBIDDEN },
  {
    rule: `self == oldSelf || self.size() < oldSelf.size() || ${DIGITS}.all(a, a * 1000 >= oldSelf.size() || ${DIGITS}.all(b, ${DIGITS}.all(c, ${DIGITS}.all(d, ${AT} >= oldSelf.size() || self[${AT}] == oldSelf[${AT}]))))`,
    message: "existing subnets cannot be changed or removed; new subnets can be appended",
    reason: FORBIDDEN,
  },
];

/** The prefix length of a CIDR. A malformed one was refused, or was stored before; the rule must not fail because of it. */
const ENDS_IN_LENGTH = "matches('^[^/]*/[0-9]{1,3}$')";
const lengthOf = (text: string): string => `int(${text}.split('/')[1])`;

/** The rules of one entry of a pool's subnets. */
export const SUBNET: readonly SchemaRule[] = [
  { rule: "has(self.ipv4) || has(self.ipv6)", message: "ipv4, ipv6 or both", reason: "FieldValueRequired" },
  {
    rule: `!has(self.ipv4) || !has(self.ipv6) || !self.ipv4.${ENDS_IN_LENGTH} || !self.ipv6.${ENDS_IN_LENGTH} || ${lengthOf("self.ipv4")} + 96 == ${lengthOf("self.ipv6")}`,
    message: "ipv4 and ipv6 must have the same number of host bits",
  },
];

/** A CIDR's family. */
export const FAMILY: Readonly<Record<"ipv4" | "ipv6", SchemaRule>> = {
  ipv4: { rule: "!self.contains(':')", message: "must be an IPv4 CIDR" },
  ipv6: { rule: "self.contains(':')", message: "must be an IPv6 CIDR" },
};

const holdsBlock = (member: string, bits: number): string => {
  const text = `s.${member}`;
  return `(!has(${text}) || !${text}.${ENDS_IN_LENGTH} || ${lengthOf(text)} + self.blockSizeBits <= ${bits})`;
};

/** Each subnet of a pool is at least as large as a block. */
export const HOLDS_A_BLOCK: SchemaRule = {
  rule: `self.subnets.all(s, ${holdsBlock("ipv4", 32)} && ${holdsBlock("ipv6", 128)})`,
  message: "a subnet is smaller than a block of 2^blockSizeBits addresses",
  fieldPath: ".subnets",
};

/** A disruption budget has exactly one side. */
export const ONE_SIDE: SchemaRule = {
  rule: "!(has(self.minAvailable) && has(self.maxUnavailable))",
  message: "minAvailable and maxUnavailable cannot both be set",
};

/** A number or percentage of pods. */
export const COUNT_OR_PERCENT: SchemaRule = {
  rule: "type(self) == int ? self >= 0 : self.matches('^0*(100|[0-9]{1,2})%$')",
  message: "must be a whole number of at least 0, or a percentage up to 100%",
};
