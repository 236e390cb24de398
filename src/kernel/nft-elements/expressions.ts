import { assertNever } from "#base/errors";
import { MessageWriter } from "#kernel/netlink";
import { CODES, FAMILIES, NFTA_DATA, NFTA_LIST_ELEM, NFTA_VERDICT } from "./constants.ts";
import type { ByteString, Verdict } from "./values.ts";

/**
 * One expression of a rule, as the kernel runs it (include/uapi/linux/netfilter/nf_tables.h). Only those for rules that
 * libnftables 1.0.6 cannot compile. Registers have 4 bytes each and are numbered from 0 to 15; a longer value takes several.
 */
export type Expression =
  /** Loads a field of the connection; `original`: of its first packet. */
  | {
      readonly kind: "ct";
      readonly key: "status" | "dst-ip" | "dst-ip6" | "src-ip" | "src-ip6" | "proto-dst";
      readonly original?: boolean;
      readonly register: number;
    }
  | { readonly kind: "meta"; readonly key: "l4proto"; readonly register: number }
  | {
      readonly kind: "payload";
      readonly base: "network" | "transport";
      readonly offset: number;
      readonly length: number;
      readonly register: number;
    }
  /** Continues only if the register's 32 bits, and-ed with the mask, are not 0, or with `no-bit` are 0. */
  | { readonly kind: "any-bit" | "no-bit"; readonly register: number; readonly mask: number }
  | { readonly kind: "equal"; readonly register: number; readonly value: ByteString }
  /** Continues only if the key that starts in the register is in the set; with `into`, loads the map's value. */
  | { readonly kind: "lookup"; readonly set: string; readonly register: number; readonly into?: number }
  /**
   * Leaves the register's 32 bits as they are, by way of the packet's mark, which is as before afterwards; `spare` is a register for it. libnftables
   * 1.0.6, which reads all rules of a table, aborts where a value of a map is a part of a key, as it does not know the value's length. Of a mark it does.
   */
  | { readonly kind: "through-mark"; readonly register: number; readonly spare: number }
  /** Loads zeros; `length` in bytes. */
  | { readonly kind: "zero"; readonly register: number; readonly length: number }
  /** Loads a random number below `modulus`, in host byte order. */
  | { readonly kind: "random"; readonly modulus: number; readonly register: number }
  /** Ends the chain: translates the destination to the address and port in these registers. */
  | { readonly kind: "dnat"; readonly family: "ip" | "ip6"; readonly address: number; readonly port: number }
  /** Ends the rule: drops, or continues in another chain. */
  | { readonly kind: "verdict"; readonly verdict: Verdict }
  /** Adds an element to a map, or renews its timeout. */
  | {
      readonly kind: "update";
      readonly set: string;
      readonly key: number;
      readonly data: number;
      readonly timeoutMs: number;
    };

const VERDICT_REGISTER = 0;
const FIRST_REGISTER = 8; // NFT_REG32_00
const CT_KEYS = {
  status: 2,
  "src-ip": 19,
  "dst-ip": 20,
  "src-ip6": 21,
  "dst-ip6": 22,
  "proto-dst": 12,
} as const;
const META_MARK = 3;
const META_L4PROTO = 16;
const BASES = { network: 1, transport: 2 } as const;
const CMP = { EQ: 0, NEQ: 1 } as const;
const DYNSET_UPDATE = 1;
const NUMGEN_RANDOM = 1;
const NAT_DNAT = 1;

/** Name and attributes of an expression. */
type Part = readonly [name: string, fill: (data: MessageWriter) => void];

/** NFTA_RULE_EXPRESSIONS. */
export function encodeExpressions(expressions: readonly Expression[]): MessageWriter {
  const list = new MessageWriter();
  for (const [name, fill] of expressions.flatMap(partsOf)) {
    list.nest(NFTA_LIST_ELEM, (element) => element.string(1, name).nest(2, fill));
  }
  return list;
}

const reg = (register: number): number => FIRST_REGISTER + register;
const word = (value: number): Uint8Array => new Uint8Array(new Uint32Array([value]).buffer);

function partsOf(expression: Expression): Part[] {
  switch (expression.kind) {
    case "ct":
      return [["ct", (data) => connectionLoad(data, expression)]];
    case "meta":
      return [["meta", (data) => data.be32(1, reg(expression.register)).be32(2, META_L4PROTO)]];
    case "payload": {
      const { base, offset, length, register } = expression;
      return [["payload", (data) => data.be32(1, reg(register)).be32(2, BASES[base]).be32(3, offset).be32(4, length)]];
    }
    case "any-bit":
    case "no-bit": {
      const { mask, kind } = expression;
      const register = reg(expression.register);
      return [
        ["bitwise", (data) => masked(data, register, mask)],
        ["cmp", (data) => compare(data, register, kind === "any-bit" ? CMP.NEQ : CMP.EQ, word(0))],
      ];
    }
    case "equal": {
      const wanted = Buffer.from(expression.value, "latin1");
      return [["cmp", (data) => compare(data, reg(expression.register), CMP.EQ, wanted)]];
    }
    case "lookup": {
      const { set, register, into } = expression;
      const fill = (data: MessageWriter): void => {
        data.string(1, set).be32(2, reg(register));
        if (into !== undefined) data.be32(3, reg(into));
      };
      return [["lookup", fill]];
    }
    case "through-mark": {
      const load = (register: number): Part => ["meta", (data) => data.be32(1, reg(register)).be32(2, META_MARK)];
      const set = (register: number): Part => ["meta", (data) => data.be32(2, META_MARK).be32(3, reg(register))];
      const { register, spare } = expression;
      return [load(spare), set(register), load(register), set(spare)];
    }
    case "zero": {
      const { register, length } = expression;
      const fill = (data: MessageWriter): void => {
        data.be32(1, reg(register)).nest(2, (value) => value.attribute(NFTA_DATA.VALUE, new Uint8Array(length)));
      };
      return [["immediate", fill]];
    }
    case "random": {
      const { modulus, register } = expression;
      return [["numgen", (data) => data.be32(1, reg(register)).be32(2, modulus).be32(3, NUMGEN_RANDOM).be32(4, 0)]];
    }
    case "dnat": {
      const { family, address, port } = expression;
      const fill = (data: MessageWriter): void => {
        data.be32(1, NAT_DNAT).be32(2, FAMILIES[family]).be32(3, reg(address)).be32(5, reg(port));
      };
      return [["nat", fill]];
    }
    case "verdict": {
      const { verdict } = expression;
      return [
        ["immediate", (data) => data.be32(1, VERDICT_REGISTER).nest(2, (value) => encodeVerdict(value, verdict))],
      ];
    }
    case "update": {
      const { set, key, data: value, timeoutMs } = expression;
      const fill = (data: MessageWriter): void => {
        data.string(1, set).be32(3, DYNSET_UPDATE).be32(4, reg(key)).be32(5, reg(value)).be64(6, BigInt(timeoutMs));
      };
      return [["dynset", fill]];
    }
    default:
      return assertNever(expression);
  }
}

function encodeVerdict(data: MessageWriter, verdict: Verdict): void {
  data.nest(NFTA_DATA.VERDICT, (inner) => {
    inner.be32(NFTA_VERDICT.CODE, CODES[verdict.kind] >>> 0);
    if ("chain" in verdict) inner.string(NFTA_VERDICT.CHAIN, verdict.chain);
  });
}

function connectionLoad(data: MessageWriter, { register, key, original }: Expression & { readonly kind: "ct" }): void {
  data.be32(1, reg(register)).be32(2, CT_KEYS[key]);
  if (original === true) data.u8(3, 0);
}

function masked(data: MessageWriter, register: number, mask: number): void {
  data.be32(1, register).be32(2, register).be32(3, 4);
  data.nest(4, (bits) => bits.attribute(NFTA_DATA.VALUE, word(mask)));
  data.nest(5, (xor) => xor.attribute(NFTA_DATA.VALUE, word(0)));
}

function compare(data: MessageWriter, register: number, operator: number, value: Uint8Array): void {
  data.be32(1, register).be32(2, operator);
  data.nest(3, (wanted) => wanted.attribute(NFTA_DATA.VALUE, value));
}
