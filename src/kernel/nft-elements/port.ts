import { type AbortOptions, Semaphore } from "#base/async";
import { isKernelError, KernelError } from "#kernel/errors";
import { bind, C, close, recv, send, sendAsync, setsockopt, socket } from "#kernel/ffi";
import {
  Attributes,
  decodeAck,
  decodeMessages,
  enlargeQueue,
  MessageWriter,
  malformed,
  NETLINK,
  NetlinkConnection,
  type NetlinkMessage,
  type NetlinkRequest,
  NLMSG,
} from "#kernel/netlink";
import { inNetNs } from "#kernel/netns";
import { type ElementBatch, MAX_BATCH_BYTES } from "./batch.ts";
import {
  FAMILIES,
  GENMSG_BYTES,
  NFT_MSG,
  NFTA_CHAIN,
  NFTA_DATA,
  NFTA_ELEM,
  NFTA_GEN,
  NFTA_LIST,
  NFTA_LIST_ELEM,
  NFTA_RULE,
  NFTA_SET,
  NFTA_TABLE_FLAGS,
  NFTA_TABLE_NAME,
} from "./constants.ts";
import { decodeElements, decodeRule } from "./decode.ts";
import type { NftElements } from "./types.ts";
import type { ByteString, ElementTable, RawElement, RawRule } from "./values.ts";

const SOL_NETLINK = 270;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const EBUSY = 16;
const EEXIST = 17;
/** Smaller batches are sent from the calling thread: the kernel takes well under a millisecond for them. */
const SYNC_BYTES = 32 << 10;
const RECEIVE_BUFFER_BYTES = 64 << 10;
/** Room for the answers to one batch: some 10,000. */
const RECEIVE_QUEUE_BYTES = 8 << 20;
/** The largest sequence number; 0 is that of notifications. */
const MAX_SEQUENCE = 0xffff_ffff;

/** A kind of objects in a table, and the request that lists them. */
interface PartKind {
  readonly get: number;
  readonly is: number;
  readonly attributes: { readonly TABLE: number; readonly NAME: number };
  readonly what: string;
}
const CHAINS = { get: NFT_MSG.GETCHAIN, is: NFT_MSG.NEWCHAIN, attributes: NFTA_CHAIN, what: "chains" } as const;
const SETS = { get: NFT_MSG.GETSET, is: NFT_MSG.NEWSET, attributes: NFTA_SET, what: "sets" } as const;
const RULES = { get: NFT_MSG.GETRULE, is: NFT_MSG.NEWRULE, attributes: NFTA_RULE, what: "rules" } as const;

/** Opens the elements of a namespace, whose handle may be closed afterwards. Needs CAP_NET_ADMIN there. */
export function openNftElements(ns: { readonly fd: number }): NftElements {
  const connection = NetlinkConnection.open(ns, NETLINK.NETFILTER);
  try {
    return new RealNftElements(connection, openBatchSocket(ns));
  } catch (error) {
    connection[Symbol.dispose]();
    throw error;
  }
}

class RealNftElements implements NftElements {
  readonly wantsRecords = false;
  readonly maxBatchBytes: number;
  readonly #connection: NetlinkConnection;
  readonly #batches: number;
  readonly #buffer = Buffer.allocUnsafeSlow(RECEIVE_BUFFER_BYTES);
  /** Number of the last message that was sent. */
  #sequence = 0;
  /** Batches of one socket run one after the other: their acks must not mix. */
  readonly #oneBatch = new Semaphore(1);
  /** A batch is being sent from a thread of the pool. */
  #isSending = false;
  #isOpen = true;

  constructor(connection: NetlinkConnection, batches: BatchSocket) {
    this.#connection = connection;
    this.#batches = batches.fd;
    this.maxBatchBytes = batches.maxBytes;
  }

  commit(batch: ElementBatch, options: AbortOptions = {}): Promise<void> {
    return this.#oneBatch.run(async () => {
      if (batch.isEmpty) return;
      const { what, first, datagram } = this.#prepare(batch);
      if (datagram.length > SYNC_BYTES) {
        this.#isSending = true;
        try {
          await sendAsync(this.#batches, datagram, what);
        } finally {
          this.#isSending = false;
        }
        // Another socket may have this number by now, and its bytes are not ours to read.
        if (!this.#isOpen) throw new KernelError("failed", `Cannot ${what}: the connection was disposed meanwhile`);
      } else this.#send(datagram, what);
      this.#readAcks(what, first);
    }, options);
  }

  commitNow(batch: ElementBatch): void {
    if (batch.isEmpty) return;
    if (this.#isSending)
      throw new KernelError("busy", `Cannot change ${batch.count} elements: another batch is being sent`);
    const { what, first, datagram } = this.#prepare(batch);
    this.#send(datagram, what);
    this.#readAcks(what, first);
  }

  #prepare(batch: ElementBatch): { readonly what: string; readonly first: number; readonly datagram: Buffer } {
    const what = `change ${batch.count} elements of table ${batch.table.family} ${batch.table.name}`;
    if (!this.#isOpen) throw new KernelError("failed", `Cannot ${what}: the connection was disposed`);
    const first = nextAfter(this.#sequence);
    const datagram = batch.finish(() => {
      this.#sequence = nextAfter(this.#sequence);
      return this.#sequence;
    });
    if (datagram.length > this.maxBatchBytes)
      throw new KernelError(
        "invalid",
        `Cannot ${what}: one datagram of ${datagram.length} bytes is needed, the maximum is ${this.maxBatchBytes}; split the batch, or raise net.core.wmem_max on the host`,
      );
    return { what, first, datagram };
  }

  #send(datagram: Buffer, what: string): void {
    if (!send(this.#batches, datagram, { what }))
      throw new KernelError("timeout", `Cannot ${what}: the socket's buffer is full`);
  }

  /**
   * Reads the answers, which are there when the send returns: for every failed message, and for the last one in any case. If they are more than the
   * queue takes, the first ones are in it.
   */
  #readAcks(what: string, first: number): void {
    let failure: KernelError | undefined;
    let answers = 0;
    for (;;) {
      const length = this.#receive();
      if (length === "lost") continue;
      if (length === undefined) break;
      for (const message of decodeMessages(this.#buffer.subarray(0, Math.min(length, this.#buffer.length)))) {
        if (message.type !== NLMSG.ERROR || !isBetween(first, message.sequence, this.#sequence)) continue;
        answers += 1;
        const { errno, text } = decodeAck(message);
        // An existing element with another value: EBUSY until Linux 6.x, EEXIST since.
        if (errno !== 0) failure ??= KernelError.fromErrno(errno === EBUSY ? EEXIST : errno, what, text);
      }
    }
    if (failure !== undefined) throw failure;
    if (answers === 0) throw new KernelError("failed", `Cannot ${what}: the kernel did not answer`);
  }

  /** Length of the next datagram; `undefined` if there is none; `lost` if the queue was full. What it holds can be read all the same. */
  #receive(): number | "lost" | undefined {
    try {
      return recv(this.#batches, this.#buffer, C.MSG_DONTWAIT, "receive from netlink");
    } catch (error) {
      if (isKernelError(error) && error.errno === "ENOBUFS") return "lost";
      throw error;
    }
  }

  list(table: ElementTable, set: string): RawElement[] {
    return this.#connection.dump(listRequest(table, set), elementsOf).flat();
  }

  async listInSlices(
    table: ElementTable,
    set: string,
    {
      keep = () => true,
      limit = Number.POSITIVE_INFINITY,
      ...options
    }: Parameters<NftElements["listInSlices"]>[2] = {},
  ): Promise<RawElement[]> {
    let kept = 0;
    const decode = (message: NetlinkMessage): RawElement[] | undefined => {
      const elements = elementsOf(message)?.filter(keep);
      kept += elements?.length ?? 0;
      return elements;
    };
    const found = await this.#connection.dumpInSlices(listRequest(table, set), decode, {
      ...options,
      isEnough: () => kept >= limit,
    });
    return found.flat().slice(0, limit);
  }

  names(table: ElementTable): { readonly chains: readonly string[]; readonly sets: readonly string[] } | undefined {
    if (!this.#hasTable(table)) return undefined;
    return { chains: this.#namesOf(table, CHAINS), sets: this.#namesOf(table, SETS) };
  }

  #hasTable(table: ElementTable): boolean {
    return this.#tableFlags(table) !== undefined;
  }

  /** `undefined` if there is no such table. */
  #tableFlags(table: ElementTable): number | undefined {
    const body = new MessageWriter().raw(genmsg(table.family)).string(NFTA_TABLE_NAME, table.name).bytes;
    const what = (): string => `find table ${table.family} ${table.name}`;
    try {
      return this.#connection.get(
        { type: NFT_MSG.GETTABLE, body, what },
        ({ payload }) => Attributes.parse(payload.subarray(GENMSG_BYTES)).be32(NFTA_TABLE_FLAGS) ?? 0,
      );
    } catch (error) {
      if (isKernelError(error, "not-found")) return undefined;
      throw error;
    }
  }

  #namesOf(table: ElementTable, kind: PartKind): string[] {
    return this.#partsOf(table, kind, (attributes) => attributes.string(kind.attributes.NAME));
  }

  /** Lists the chains, sets or rules of a table, each through a reader. */
  #partsOf<T>(
    table: ElementTable,
    kind: Pick<PartKind, "get" | "is" | "what"> & { readonly attributes: { readonly TABLE: number } },
    read: (attributes: Attributes) => T | undefined,
  ): T[] {
    const { TABLE } = kind.attributes;
    const body = new MessageWriter().raw(genmsg(table.family)).string(TABLE, table.name).bytes;
    const what = (): string => `list the ${kind.what} of table ${table.family} ${table.name}`;
    return this.#connection.dump({ type: kind.get, body, what }, ({ type, payload }) => {
      if (type !== kind.is) return undefined;
      const attributes = Attributes.parse(payload.subarray(GENMSG_BYTES));
      return attributes.string(TABLE) === table.name ? read(attributes) : undefined;
    });
  }

  ruleHandles(table: ElementTable): string[] {
    return this.#partsOf(
      table,
      RULES,
      (attributes) => `${attributes.string(NFTA_RULE.CHAIN)} ${attributes.be64(NFTA_RULE.HANDLE)}`,
    );
  }

  rules(table: ElementTable): RawRule[] {
    return this.#partsOf(table, RULES, decodeRule);
  }

  structure(table: ElementTable): string[] {
    const flags = this.#tableFlags(table);
    if (flags === undefined) return [];
    const chains = this.#partsOf(table, CHAINS, (attributes) => {
      const hook = attributes.bytes(NFTA_CHAIN.HOOK)?.toString("hex") ?? "none";
      const policy = attributes.be32(NFTA_CHAIN.POLICY) ?? "none";
      return `chain ${attributes.string(NFTA_CHAIN.NAME)} ${attributes.be64(NFTA_CHAIN.HANDLE)} ${hook} ${policy}`;
    });
    const sets = this.#partsOf(
      table,
      SETS,
      (attributes) => `set ${attributes.string(NFTA_SET.NAME)} ${attributes.be64(NFTA_SET.HANDLE)}`,
    );
    return [`table ${flags}`, ...chains, ...sets, ...this.ruleHandles(table).map((rule) => `rule ${rule}`)];
  }

  find(table: ElementTable, set: string, key: ByteString): RawElement | undefined {
    const body = setBody(table, set).nest(NFTA_LIST.ELEMENTS, (list) => {
      list.nest(NFTA_LIST_ELEM, (element) => {
        element.nest(NFTA_ELEM.KEY, (data) => data.attribute(NFTA_DATA.VALUE, Buffer.from(key, "latin1")));
      });
    }).bytes;
    const request: NetlinkRequest = {
      type: NFT_MSG.GETSETELEM,
      body,
      what: () => `find an element of ${describe(table, set)}`,
    };
    try {
      return this.#connection.get(request, ({ payload }) => decodeElements(payload)[0]);
    } catch (error) {
      if (isKernelError(error, "not-found")) return undefined;
      throw error;
    }
  }

  generation(): number {
    const body = new MessageWriter().raw(genmsg("inet")).bytes;
    const request = { type: NFT_MSG.GETGEN, body, what: () => "read the generation of nftables" };
    const id = this.#connection.get(request, ({ payload }) =>
      Attributes.parse(payload.subarray(GENMSG_BYTES)).be32(NFTA_GEN.ID),
    );
    if (id === undefined) throw malformed("a generation message lacks its number");
    return id;
  }

  [Symbol.dispose](): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    close(this.#batches);
    this.#connection[Symbol.dispose]();
  }
}

/** A socket for batches, and the largest datagram that it takes, in bytes. */
interface BatchSocket {
  readonly fd: number;
  readonly maxBytes: number;
}

function openBatchSocket(ns: { readonly fd: number }): BatchSocket {
  const fd = inNetNs(ns, () => socket(C.AF_NETLINK, C.SOCK_RAW, NETLINK.NETFILTER));
  try {
    const address = new Uint8Array(12); // struct sockaddr_nl with port id 0: the kernel chooses it
    address[0] = C.AF_NETLINK;
    bind(fd, address, "bind a netlink socket");
    setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, 1);
    setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, 1);
    enlargeQueue(fd, "receive", RECEIVE_QUEUE_BYTES);
    // The send queue must hold the whole datagram and 32 bytes (netlink_sendmsg). In a user namespace wmem_max limits it.
    const queue = enlargeQueue(fd, "send", MAX_BATCH_BYTES);
    return { fd, maxBytes: Math.min(MAX_BATCH_BYTES, queue - 32) };
  } catch (error) {
    close(fd);
    throw error;
  }
}

function nextAfter(sequence: number): number {
  return sequence === MAX_SEQUENCE ? 1 : sequence + 1;
}

/** Returns true if a number is from `first` to `last`, which may have begun again at 1. */
function isBetween(first: number, number: number, last: number): boolean {
  return first <= last ? first <= number && number <= last : number >= first || (number > 0 && number <= last);
}

function listRequest(table: ElementTable, set: string): NetlinkRequest {
  const what = (): string => `list the elements of ${describe(table, set)}`;
  return { type: NFT_MSG.GETSETELEM, body: setBody(table, set).bytes, what };
}

function elementsOf({ type, payload }: NetlinkMessage): RawElement[] | undefined {
  return type === NFT_MSG.NEWSETELEM ? decodeElements(payload) : undefined;
}

function setBody(table: ElementTable, set: string): MessageWriter {
  return new MessageWriter().raw(genmsg(table.family)).string(NFTA_LIST.TABLE, table.name).string(NFTA_LIST.SET, set);
}

function genmsg(family: ElementTable["family"]): Uint8Array {
  return Uint8Array.of(FAMILIES[family], 0, 0, 0);
}

function describe(table: ElementTable, set: string): string {
  return `${table.family} ${table.name} ${set}`;
}
