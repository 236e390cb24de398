import { KernelError } from "#kernel/errors";
import { MessageWriter, NLM_F } from "#kernel/netlink";
import type { RecordedChange } from "./changes.ts";
import {
  CODES,
  FAMILIES,
  GENMSG_BYTES,
  HEADER_BYTES,
  NESTED,
  NFNL_BATCH,
  NFT_MSG,
  NFT_SET_MAP,
  NFTA_DATA,
  NFTA_ELEM,
  NFTA_LIST,
  NFTA_LIST_ELEM,
  NFTA_RULE,
  NFTA_SET,
  NFTA_VERDICT,
  TYPE_BITS,
  TYPES,
  UDATA_COMMENT,
} from "./constants.ts";
import { type Expression, encodeExpressions } from "./expressions.ts";
import type { ByteString, ElementTable, ElementValue, PartType, Verdict } from "./values.ts";

/** The maximum size of a datagram, in bytes: about 350,000 elements of IPv4. */
export const MAX_BATCH_BYTES = 32 << 20;
/** A nested attribute's length has 16 bits; this leaves room for one more element. */
const MAX_LIST_BYTES = 60_000;
/** Size of the largest element: keys and values have at most 64 bytes (NFT_DATA_VALUE_MAXLEN), a chain's name 256, a comment 128. */
const MAX_ELEMENT_BYTES = 768;
const FIRST_BYTES = 4096;

/**
 * Changes of elements of one table, or of several with {@link ElementBatch.inTable}, encoded as they are added; applied together or not at all. Adding an existing element with the
 * same value changes nothing. May be committed once.
 */
export class ElementBatch {
  #table: ElementTable;
  #bytes = Buffer.allocUnsafe(FIRST_BYTES);
  #at = 0;
  #count = 0;
  /** The current message: its start, the start of its list, its operation and set. */
  #open: { readonly start: number; readonly list: number; readonly kind: string } | undefined;
  #lastMessage = 0;
  readonly #changes: RecordedChange[] | undefined;

  /** With `record`, the batch also keeps its changes as data, for logs and fakes; this takes an object for each change. */
  constructor(table: ElementTable, options: { readonly record?: boolean } = {}) {
    this.#table = table;
    this.#changes = options.record === true ? [] : undefined;
    this.#message(NFNL_BATCH.BEGIN, 0, NFNL_BATCH.SUBSYSTEM);
    this.#endMessage();
  }

  /** The table of the changes that are added next. */
  get table(): ElementTable {
    return this.#table;
  }

  /** Makes another table that of the changes that are added next. */
  inTable(table: ElementTable): this {
    this.#finishMessage();
    this.#table = table;
    return this;
  }

  /**
   * Adds an element; with `value`, to a map; with `keyEnd`, the interval from `key` to `keyEnd`, both included. The comment has at most 127
   * bytes.
   */
  add(set: string, key: ByteString, value?: ElementValue, comment?: string, keyEnd?: ByteString): this {
    this.#changes?.push({
      table: this.#table,
      op: "add",
      set,
      key,
      ...(value === undefined ? {} : { value }),
      ...(comment === undefined ? {} : { comment }),
      ...(keyEnd === undefined ? {} : { keyEnd }),
    });
    this.#begin("add", set);
    const element = this.#startNested(NFTA_LIST_ELEM);
    this.#data(NFTA_ELEM.KEY, key);
    if (keyEnd !== undefined) this.#data(NFTA_ELEM.KEY_END, keyEnd);
    if (typeof value === "string") this.#data(NFTA_ELEM.DATA, value);
    else if (value !== undefined) this.#verdict(value);
    if (comment !== undefined) this.#comment(comment);
    this.#endAttribute(element);
    return this;
  }

  /** Deletes an element by its key, or an interval by both its ends. */
  delete(set: string, key: ByteString, keyEnd?: ByteString): this {
    this.#changes?.push({ table: this.#table, op: "delete", set, key, ...(keyEnd === undefined ? {} : { keyEnd }) });
    this.#begin("delete", set);
    const element = this.#startNested(NFTA_LIST_ELEM);
    this.#data(NFTA_ELEM.KEY, key);
    if (keyEnd !== undefined) this.#data(NFTA_ELEM.KEY_END, keyEnd);
    this.#endAttribute(element);
    return this;
  }

  /** Deletes all elements of a set. */
  flush(set: string): this {
    this.#changes?.push({ table: this.#table, op: "flush", set });
    this.#finishMessage();
    this.#count += 1;
    this.#message(NFT_MSG.DELSETELEM, 0, 0);
    this.#string(NFTA_LIST.TABLE, this.#table.name);
    this.#string(NFTA_LIST.SET, set);
    this.#endMessage();
    return this;
  }

  /**
   * Adds a map, unless it exists. For keys with a random number of `numgen`, which has no named type in nft(8): libnftables 1.0.6 makes
   * such a map only by `typeof`, and then cannot compile rules that use it ("conflicting protocols").
   */
  map(set: string, key: readonly PartType[], value: readonly PartType[]): this {
    this.#changes?.push({ table: this.#table, op: "map", set, key, value });
    this.#finishMessage();
    this.#count += 1;
    this.#message(NFT_MSG.NEWSET, NLM_F.CREATE, 0);
    const body = new MessageWriter()
      .string(NFTA_SET.TABLE, this.#table.name)
      .string(NFTA_SET.NAME, set)
      .be32(NFTA_SET.FLAGS, NFT_SET_MAP)
      .be32(NFTA_SET.KEY_TYPE, typeNumber(key))
      .be32(NFTA_SET.KEY_LEN, typeBytes(key))
      .be32(NFTA_SET.DATA_TYPE, typeNumber(value))
      .be32(NFTA_SET.DATA_LEN, typeBytes(value))
      .be32(NFTA_SET.ID, this.#count).bytes;
    this.#raw(body);
    this.#endMessage();
    return this;
  }

  /** Deletes all rules of a chain. */
  emptyChain(chain: string): this {
    this.#changes?.push({ table: this.#table, op: "empty", set: "", chain });
    this.#finishMessage();
    this.#count += 1;
    this.#message(NFT_MSG.DELRULE, 0, 0);
    this.#string(NFTA_RULE.TABLE, this.#table.name);
    this.#string(NFTA_RULE.CHAIN, chain);
    this.#endMessage();
    return this;
  }

  /** Adds a rule at the end of a chain, for rules that libnftables 1.0.6 cannot compile. */
  rule(chain: string, expressions: readonly Expression[]): this {
    this.#changes?.push({ table: this.#table, op: "rule", set: "", chain, expressions });
    this.#finishMessage();
    this.#count += 1;
    this.#message(NFT_MSG.NEWRULE, NLM_F.CREATE | NLM_F.APPEND, 0);
    const body = new MessageWriter()
      .string(NFTA_RULE.TABLE, this.#table.name)
      .string(NFTA_RULE.CHAIN, chain)
      .attribute(NFTA_RULE.EXPRESSIONS | NESTED, encodeExpressions(expressions).bytes).bytes;
    this.#raw(body);
    this.#endMessage();
    return this;
  }

  /** Number of added and deleted elements and flushed sets. */
  get count(): number {
    return this.#count;
  }

  get isEmpty(): boolean {
    return this.#count === 0;
  }

  /** Length so far. A batch longer than `NftElements.maxBatchBytes` cannot be committed. */
  get byteLength(): number {
    return this.#at;
  }

  /** The changes in order; empty unless the batch records. */
  get changes(): readonly RecordedChange[] {
    return this.#changes ?? [];
  }

  /**
   * The whole datagram; only its last message requests an ack. `number` gives the sequence number of each message. Throws {@link KernelError} `invalid`
   * when it is too large.
   */
  finish(number: () => number = () => 0): Buffer {
    this.#finishMessage();
    if (this.#at > MAX_BATCH_BYTES) {
      throw new KernelError(
        "invalid",
        `Cannot send a batch of ${this.#at} bytes: the maximum is ${MAX_BATCH_BYTES}; split the batch`,
      );
    }
    const flags = this.#bytes.readUInt16LE(this.#lastMessage + 6);
    this.#bytes.writeUInt16LE(flags | NLM_F.ACK, this.#lastMessage + 6);
    this.#message(NFNL_BATCH.END, 0, NFNL_BATCH.SUBSYSTEM);
    this.#endMessage();
    for (let at = 0; at < this.#at; at += (this.#bytes.readUInt32LE(at) + 3) & ~3)
      this.#bytes.writeUInt32LE(number(), at + 8);
    return this.#bytes.subarray(0, this.#at);
  }

  #begin(op: "add" | "delete", set: string): void {
    this.#count += 1;
    const kind = `${op} ${set}`;
    this.#reserve(MAX_ELEMENT_BYTES);
    if (this.#open?.kind === kind && this.#at - this.#open.list < MAX_LIST_BYTES) return;
    this.#finishMessage();
    const start = this.#at;
    this.#message(op === "add" ? NFT_MSG.NEWSETELEM : NFT_MSG.DELSETELEM, op === "add" ? NLM_F.CREATE : 0, 0);
    this.#string(NFTA_LIST.TABLE, this.#table.name);
    this.#string(NFTA_LIST.SET, set);
    this.#reserve(MAX_ELEMENT_BYTES);
    this.#open = { start, list: this.#startNested(NFTA_LIST.ELEMENTS), kind };
  }

  #finishMessage(): void {
    if (this.#open === undefined) return;
    this.#endAttribute(this.#open.list);
    this.#open = undefined;
    this.#endMessage();
  }

  #message(type: number, flags: number, resource: number): void {
    this.#reserve(HEADER_BYTES + GENMSG_BYTES + MAX_ELEMENT_BYTES);
    const at = this.#at;
    this.#lastMessage = at;
    this.#bytes.writeUInt16LE(type, at + 4);
    this.#bytes.writeUInt16LE(NLM_F.REQUEST | flags, at + 6);
    this.#bytes.writeUInt32LE(0, at + 8); // `finish` numbers the messages
    this.#bytes.writeUInt32LE(0, at + 12);
    this.#bytes.writeUInt8(FAMILIES[this.#table.family], at + 16);
    this.#bytes.writeUInt8(0, at + 17);
    this.#bytes.writeUInt16BE(resource, at + 18);
    this.#at = at + HEADER_BYTES + GENMSG_BYTES;
  }

  #endMessage(): void {
    this.#bytes.writeUInt32LE(this.#at - this.#lastMessage, this.#lastMessage);
  }

  #startNested(type: number): number {
    const start = this.#at;
    this.#bytes.writeUInt16LE(type | NESTED, start + 2);
    this.#at = start + 4;
    return start;
  }

  #endAttribute(start: number): void {
    this.#bytes.writeUInt16LE(this.#at - start, start);
  }

  /** A leaf attribute, padded. */
  #leaf(type: number, bytes: ByteString, encoding: "latin1" | "utf8" = "latin1"): void {
    const start = this.#at;
    const length = this.#bytes.write(bytes, start + 4, encoding);
    this.#bytes.writeUInt16LE(4 + length, start);
    this.#bytes.writeUInt16LE(type, start + 2);
    this.#at = start + 4 + length;
    while ((this.#at & 3) !== 0) {
      this.#bytes[this.#at] = 0;
      this.#at += 1;
    }
  }

  #string(type: number, text: string): void {
    this.#leaf(type, `${text}\0`, "utf8");
  }

  #data(type: number, bytes: ByteString): void {
    if (bytes.length === 0 || bytes.length > 64) {
      throw new KernelError("invalid", `Cannot encode a part of an element of ${bytes.length} bytes: use 1 to 64`);
    }
    const start = this.#startNested(type);
    this.#leaf(NFTA_DATA.VALUE, bytes);
    this.#endAttribute(start);
  }

  #verdict(verdict: Verdict): void {
    const data = this.#startNested(NFTA_ELEM.DATA);
    const inner = this.#startNested(NFTA_DATA.VERDICT);
    const code = this.#at;
    this.#bytes.writeUInt16LE(8, code);
    this.#bytes.writeUInt16LE(NFTA_VERDICT.CODE, code + 2);
    this.#bytes.writeInt32BE(CODES[verdict.kind], code + 4);
    this.#at = code + 8;
    if ("chain" in verdict) this.#string(NFTA_VERDICT.CHAIN, verdict.chain);
    this.#endAttribute(inner);
    this.#endAttribute(data);
  }

  /** Encodes a comment as nft(8) does: type, length, text with its NUL. */
  #comment(text: string): void {
    const length = Buffer.byteLength(text) + 1;
    if (length > 128)
      throw new KernelError("invalid", `Cannot encode a comment of ${length - 1} bytes: the maximum is 127`);
    const bytes = Buffer.alloc(2 + length);
    bytes.writeUInt8(UDATA_COMMENT, 0);
    bytes.writeUInt8(length, 1);
    bytes.write(text, 2);
    this.#leaf(NFTA_ELEM.USERDATA, bytes.toString("latin1"));
  }

  #raw(body: Uint8Array): void {
    this.#reserve(body.length + MAX_ELEMENT_BYTES);
    this.#bytes.set(body, this.#at);
    this.#at += body.length;
  }

  #reserve(length: number): void {
    if (this.#at + length <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#at + length));
    this.#bytes.copy(larger, 0, 0, this.#at);
    this.#bytes = larger;
  }
}

function typeNumber(parts: readonly PartType[]): number {
  return parts.reduce((number, part) => (number << TYPE_BITS) | TYPES[part].id, 0);
}

function typeBytes(parts: readonly PartType[]): number {
  return parts.reduce((sum, part) => sum + TYPES[part].bytes, 0);
}
