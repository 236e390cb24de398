import { Cidr } from "#base/ip";
import { AF, Attributes, familyNumber, MessageWriter, malformed } from "#kernel/netlink";
import type { Rule, RuleAction, RuleSpec } from "./types.ts";

/** Numbers of include/uapi/linux/fib_rules.h. */
const FRA = {
  DST: 1,
  SRC: 2,
  IIFNAME: 3,
  GOTO: 4,
  PRIORITY: 6,
  FWMARK: 10,
  SUPPRESS_PREFIXLEN: 14,
  TABLE: 15,
  FWMASK: 16,
  OIFNAME: 17,
  PROTOCOL: 21,
} as const;
const FIB_RULE_INVERT = 2;
const ACTIONS: Readonly<Record<RuleAction, number>> = {
  lookup: 1,
  goto: 2,
  nop: 3,
  blackhole: 6,
  unreachable: 7,
  prohibit: 8,
};
const ALL_ONES = 0xffff_ffff;

/** `struct fib_rule_hdr` and attributes, for RTM_NEWRULE and RTM_DELRULE. */
export function encodeRule(spec: RuleSpec): Uint8Array {
  const header = Buffer.alloc(12);
  header.writeUInt8(familyNumber(spec.family), 0);
  header.writeUInt8(spec.to?.prefixLength ?? 0, 1);
  header.writeUInt8(spec.from?.prefixLength ?? 0, 2);
  header.writeUInt8(spec.table !== undefined && spec.table < 256 ? spec.table : 0, 4);
  header.writeUInt8(ACTIONS[spec.action ?? "lookup"], 7);
  header.writeUInt32LE(spec.invert === true ? FIB_RULE_INVERT : 0, 8);
  const writer = new MessageWriter().raw(header).u32(FRA.PRIORITY, spec.priority);
  if (spec.to !== undefined && spec.to.prefixLength > 0) writer.address(FRA.DST, spec.to.base);
  if (spec.from !== undefined && spec.from.prefixLength > 0) writer.address(FRA.SRC, spec.from.base);
  if (spec.table !== undefined) writer.u32(FRA.TABLE, spec.table);
  if (spec.goto !== undefined) writer.u32(FRA.GOTO, spec.goto);
  if (spec.fwmark !== undefined) writer.u32(FRA.FWMARK, spec.fwmark);
  if (spec.fwmask !== undefined) writer.u32(FRA.FWMASK, spec.fwmask);
  if (spec.iif !== undefined) writer.string(FRA.IIFNAME, spec.iif);
  if (spec.oif !== undefined) writer.string(FRA.OIFNAME, spec.oif);
  if (spec.suppressPrefixLength !== undefined) writer.u32(FRA.SUPPRESS_PREFIXLEN, spec.suppressPrefixLength);
  if (spec.protocol !== undefined) writer.u8(FRA.PROTOCOL, spec.protocol);
  return writer.bytes;
}

/** The body of a dump. */
export function encodeRuleDump(family: 4 | 6): Uint8Array {
  const header = Buffer.alloc(12);
  header.writeUInt8(familyNumber(family), 0);
  return header;
}

/** Decodes RTM_NEWRULE; `undefined` for families and actions that this module does not support. Throws {@link KernelError} `invalid`. */
export function decodeRule(payload: Buffer): Rule | undefined {
  if (payload.length < 12) throw malformed(`a rule message has only ${payload.length} bytes`);
  const number = payload.readUInt8(7);
  const action = (Object.keys(ACTIONS) as RuleAction[]).find((name) => ACTIONS[name] === number);
  const familyByte = payload.readUInt8(0);
  if (action === undefined || (familyByte !== AF.INET && familyByte !== AF.INET6)) return undefined;
  const attributes = Attributes.parse(payload.subarray(12));
  return {
    family: familyByte === AF.INET ? 4 : 6,
    priority: attributes.u32(FRA.PRIORITY) ?? 0,
    table: action === "lookup" ? (attributes.u32(FRA.TABLE) ?? payload.readUInt8(4)) : 0,
    action,
    ...decodeMatch(attributes, payload),
    ...decodeOutcome(attributes),
  };
}

function decodeMatch(attributes: Attributes, header: Buffer): Partial<Rule> {
  const to = prefix(attributes, FRA.DST, header.readUInt8(1));
  const from = prefix(attributes, FRA.SRC, header.readUInt8(2));
  const [fwmark, fwmask] = [attributes.u32(FRA.FWMARK), attributes.u32(FRA.FWMASK)];
  const [iif, oif] = [attributes.string(FRA.IIFNAME), attributes.string(FRA.OIFNAME)];
  const marked = (fwmark ?? 0) !== 0 || (fwmask ?? 0) !== 0;
  return {
    ...(marked ? { fwmark: fwmark ?? 0 } : {}),
    ...(marked && fwmask !== undefined && fwmask !== ALL_ONES ? { fwmask } : {}),
    ...(from === undefined ? {} : { from }),
    ...(to === undefined ? {} : { to }),
    ...(iif === undefined ? {} : { iif }),
    ...(oif === undefined ? {} : { oif }),
    ...((header.readUInt32LE(8) & FIB_RULE_INVERT) === 0 ? {} : { invert: true }),
  };
}

function decodeOutcome(attributes: Attributes): Partial<Rule> {
  const suppress = attributes.u32(FRA.SUPPRESS_PREFIXLEN);
  const protocol = attributes.u8(FRA.PROTOCOL);
  const target = attributes.u32(FRA.GOTO);
  return {
    ...(suppress === undefined || suppress === ALL_ONES ? {} : { suppressPrefixLength: suppress }),
    ...(protocol === undefined || protocol === 0 ? {} : { protocol }),
    ...(target === undefined ? {} : { goto: target }),
  };
}

function prefix(attributes: Attributes, type: number, length: number): Cidr | undefined {
  const base = attributes.address(type);
  if (base === undefined) return undefined;
  if (length > base.bits) throw malformed(`a rule for ${base}/${length}`);
  return Cidr.of(base, length);
}
