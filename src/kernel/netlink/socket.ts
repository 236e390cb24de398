import { isKernelError, KernelError } from "#kernel/errors";
import { bind, C, close, recv, recvAsync, send, sendAsync, setsockopt, socket } from "#kernel/ffi";
import { inNetNs } from "#kernel/netns";
import { decodeMessages, encodeMessage, type NetlinkMessage } from "./message.ts";
import { enlargeQueue } from "./queue.ts";

const SOL_NETLINK = 270;
const NETLINK_CAP_ACK = 10;
const NETLINK_EXT_ACK = 11;
const NETLINK_GET_STRICT_CHK = 12;

/** The size of the receive queue, in bytes. Even a dump of some 50,000 routes does not fill it, because the kernel paces dumps. */
const RECEIVE_QUEUE_BYTES = 8 << 20;
/**
 * The kernel makes dump datagrams of 32 KiB at most (af_netlink.c, max_recvmsg_len), unless one object is larger: a link has up to 64 KiB of alternative names
 * (rtnl_alt_ifname of rtnetlink.c), which whoever has CAP_NET_ADMIN in a namespace can give it, and some KiB besides. Pages that are not used take no memory.
 */
const RECEIVE_BUFFER_BYTES = 128 << 10;
/** The maximum wait for an answer, in milliseconds. The kernel answers before the send returns; only a bug can cause a wait. */
const RECEIVE_TIMEOUT_MS = 10_000;

/** A request without its header. */
export interface RawRequest {
  readonly type: number;
  readonly flags: number;
  readonly body: Uint8Array;
}

/** One AF_NETLINK socket of one namespace. Internal: only {@link NetlinkConnection} uses it. */
export class NetlinkSocket implements Disposable {
  readonly fd: number;
  /** True when the kernel checks and applies dump filters (Linux 4.20). */
  readonly strict: boolean;
  readonly #buffer = Buffer.allocUnsafeSlow(RECEIVE_BUFFER_BYTES);
  #sequence = 1;
  #open = true;

  private constructor(fd: number, strict: boolean) {
    this.fd = fd;
    this.strict = strict;
  }

  /** Opens and configures the socket inside `ns`. Throws {@link KernelError}. */
  static open(ns: { readonly fd: number }, protocol: number): NetlinkSocket {
    const fd = inNetNs(ns, () => socket(C.AF_NETLINK, C.SOCK_RAW, protocol));
    try {
      const strict = configure(fd);
      return new NetlinkSocket(fd, strict);
    } catch (error) {
      close(fd);
      throw error;
    }
  }

  /** Sends a request and returns its sequence number. */
  send(type: number, flags: number, body: Uint8Array): number {
    const { sequence, bytes } = this.#encode(type, flags, body);
    if (!send(this.fd, bytes, { what: `send netlink request ${type}` })) {
      throw new KernelError("timeout", `Cannot send netlink request ${type}: the socket's buffer is full`);
    }
    return sequence;
  }

  /** As {@link NetlinkSocket.send}, on a thread of the pool. */
  async sendAsync({ type, flags, body }: RawRequest, what: string): Promise<number> {
    const { sequence, bytes } = this.#encode(type, flags, body);
    await sendAsync(this.fd, bytes, what);
    return sequence;
  }

  /** Sends requests as one datagram, on a thread of the pool; returns the sequence number of each. */
  async sendAllAsync(requests: readonly RawRequest[], what: string): Promise<number[]> {
    const encoded = requests.map(({ type, flags, body }) => this.#encode(type, flags, body));
    // A message starts at a multiple of four (NLMSG_ALIGN).
    const padded = encoded.flatMap(({ bytes }) => [bytes, Buffer.alloc(-bytes.length & 3)]);
    await sendAsync(this.fd, Buffer.concat(padded), what);
    return encoded.map(({ sequence }) => sequence);
  }

  /** The messages of the next datagram that answer `sequence`; older answers are skipped. */
  *receive(sequence: number, what: () => string): Generator<NetlinkMessage> {
    const length = recv(this.fd, this.#buffer, 0, "receive from netlink");
    if (length === undefined) {
      throw new KernelError("timeout", `Cannot ${what()}: no answer from the kernel within ${RECEIVE_TIMEOUT_MS} ms`);
    }
    yield* this.#messages(length, sequence, what);
  }

  /** As {@link NetlinkSocket.receive}, on a thread of the pool. Only one call may wait at a time. */
  async receiveAsync(sequence: number, what: () => string): Promise<Iterable<NetlinkMessage>> {
    return this.#messages(await recvAsync(this.fd, this.#buffer, what()), sequence, what);
  }

  *#messages(length: number, sequence: number, what: () => string): Generator<NetlinkMessage> {
    if (length > this.#buffer.length) {
      throw new KernelError(
        "failed",
        `Cannot ${what()}: the answer has ${length} bytes, more than ${this.#buffer.length}`,
      );
    }
    for (const message of decodeMessages(this.#buffer.subarray(0, length))) {
      if (message.sequence === sequence) yield message;
    }
  }

  #encode(type: number, flags: number, body: Uint8Array): { readonly sequence: number; readonly bytes: Buffer } {
    if (!this.#open) throw new KernelError("failed", "Cannot use a netlink connection after it was disposed");
    const sequence = this.#sequence;
    this.#sequence = (sequence % 0xffff_fffe) + 1;
    return { sequence, bytes: encodeMessage(type, flags, sequence, body) };
  }

  [Symbol.dispose](): void {
    if (this.#open) close(this.fd);
    this.#open = false;
  }
}

function configure(fd: number): boolean {
  const nobody = new Uint8Array(12); // struct sockaddr_nl with port id 0: the kernel picks one
  nobody[0] = C.AF_NETLINK;
  bind(fd, nobody, "bind a netlink socket");
  setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, 1);
  setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, 1);
  enlargeQueue(fd, "receive", RECEIVE_QUEUE_BYTES);
  const timeout = new BigInt64Array([BigInt(RECEIVE_TIMEOUT_MS / 1000), 0n]); // struct timeval
  setsockopt(fd, C.SOL_SOCKET, C.SO_RCVTIMEO, new Uint8Array(timeout.buffer));
  try {
    setsockopt(fd, SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1);
    return true;
  } catch (error) {
    if (!isKernelError(error, "unsupported", "invalid")) throw error;
    return false;
  }
}
