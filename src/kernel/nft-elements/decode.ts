import { Attributes, eachAttribute, malformed } from "#kernel/netlink";
import {
  CODES,
  GENMSG_BYTES,
  NFT_SET_ELEM_INTERVAL_END,
  NFTA_COUNTER,
  NFTA_DATA,
  NFTA_ELEM,
  NFTA_EXPR,
  NFTA_LIST,
  NFTA_LIST_ELEM,
  NFTA_RULE,
  NFTA_VERDICT,
  UDATA_COMMENT,
} from "./constants.ts";
import type { ByteString, ElementValue, RawElement, RawRule } from "./values.ts";

/** Decodes the elements of one NFT_MSG_NEWSETELEM (without its header). Throws `KernelError` `invalid` for malformed bytes. */
export function decodeElements(payload: Buffer): RawElement[] {
  if (payload.length < GENMSG_BYTES) throw malformed(`a message of elements has only ${payload.length} bytes`);
  const list = Attributes.parse(payload.subarray(GENMSG_BYTES)).bytes(NFTA_LIST.ELEMENTS);
  const elements: RawElement[] = [];
  if (list === undefined) return elements;
  for (const { type, payload: element } of eachAttribute(list)) {
    if (type === NFTA_LIST_ELEM) elements.push(decodeElement(element));
  }
  return elements;
}

function decodeElement(bytes: Buffer): RawElement {
  const attributes = Attributes.parse(bytes);
  const key = dataBytes(attributes.nested(NFTA_ELEM.KEY));
  if (key === undefined) throw malformed("an element without a key");
  const value = decodeValue(attributes.nested(NFTA_ELEM.DATA));
  const expiration = attributes.be64(NFTA_ELEM.EXPIRATION);
  const comment = decodeComment(attributes.bytes(NFTA_ELEM.USERDATA));
  const keyEnd = dataBytes(attributes.nested(NFTA_ELEM.KEY_END));
  return {
    key,
    ...(keyEnd === undefined ? {} : { keyEnd }),
    ...(((attributes.be32(NFTA_ELEM.FLAGS) ?? 0) & NFT_SET_ELEM_INTERVAL_END) === 0 ? {} : { isEnd: true as const }),
    ...(value === undefined ? {} : { value }),
    ...(comment === undefined ? {} : { comment }),
    ...(expiration === undefined ? {} : { expiresInMs: Number(expiration) }),
  };
}

function dataBytes(data: Attributes): ByteString | undefined {
  return data.bytes(NFTA_DATA.VALUE)?.toString("latin1");
}

function decodeValue(data: Attributes): ElementValue | undefined {
  if (!data.has(NFTA_DATA.VERDICT)) return dataBytes(data);
  const verdict = data.nested(NFTA_DATA.VERDICT);
  const code = (verdict.be32(NFTA_VERDICT.CODE) ?? 0) | 0;
  const chain = verdict.string(NFTA_VERDICT.CHAIN) ?? "";
  if (code === CODES.goto) return { kind: "goto", chain };
  if (code === CODES.jump) return { kind: "jump", chain };
  return { kind: code === CODES.drop ? "drop" : "accept" };
}

/** Finds the comment in user data, a list of type, length and bytes. */
function decodeComment(bytes: Buffer | undefined): string | undefined {
  for (let at = 0; bytes !== undefined && at + 2 <= bytes.length; ) {
    const [type = 0, length = 0] = [bytes[at], bytes[at + 1]];
    if (at + 2 + length > bytes.length) throw malformed("user data is cut short");
    if (type === UDATA_COMMENT) return bytes.toString("utf8", at + 2, at + 2 + Math.max(0, length - 1));
    at += 2 + length;
  }
  return undefined;
}

/** Decodes the attributes of one NFT_MSG_NEWRULE. Throws `KernelError` `invalid` for malformed bytes. */
export function decodeRule(attributes: Attributes): RawRule {
  const comment = decodeComment(attributes.bytes(NFTA_RULE.USERDATA));
  const counter = counterOf(attributes.bytes(NFTA_RULE.EXPRESSIONS));
  return {
    chain: attributes.string(NFTA_RULE.CHAIN) ?? "",
    ...(comment === undefined ? {} : { comment }),
    ...(counter === undefined ? {} : { counter }),
  };
}

/** The first counter of a rule. */
function counterOf(expressions: Buffer | undefined): RawRule["counter"] {
  if (expressions === undefined) return undefined;
  for (const { type, payload } of eachAttribute(expressions)) {
    if (type !== NFTA_LIST_ELEM) continue;
    const expression = Attributes.parse(payload);
    if (expression.string(NFTA_EXPR.NAME) !== "counter") continue;
    const data = expression.nested(NFTA_EXPR.DATA);
    return {
      packets: Number(data.be64(NFTA_COUNTER.PACKETS) ?? 0n),
      bytes: Number(data.be64(NFTA_COUNTER.BYTES) ?? 0n),
    };
  }
  return undefined;
}
