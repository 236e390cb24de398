import { connect, type OnReadOpts, Socket } from "node:net";
import type { IpAddress } from "#base/ip";
import type { BufferPool } from "./buffer-pool.ts";

/** Where an upstream socket goes. */
export interface UpstreamPath {
  readonly address: IpAddress;
  readonly port: number;
}

const HALF_OPEN = { allowHalfOpen: true, noDelay: true } as const;

/**
 * A socket to a destination that reads into one buffer of its own again and again: what arrives must be written on, or copied,
 * before the taker returns true. Paused until {@link Upstream.start}. It can be half-closed.
 */
export class Upstream {
  readonly socket: Socket;
  readonly #pool: BufferPool;
  readonly #buffer: Uint8Array;
  #take: ((chunk: Uint8Array) => boolean) | undefined;
  /** Somebody may still read the buffer. */
  #isLent = false;
  #isReleased = false;

  private constructor(pool: BufferPool, open: (onread: OnReadOpts) => Socket) {
    this.#pool = pool;
    this.#buffer = pool.take();
    this.socket = open({
      buffer: this.#buffer,
      callback: (length, buffer) => this.#take?.(buffer.subarray(0, length)) ?? false,
    });
    this.socket.pause();
    // A close follows each error and is what is acted upon; who dials listens for itself.
    this.socket.on("error", () => this.socket.destroy());
    this.socket.once("close", () => this.#release());
  }

  /** Begins to connect, from whatever address the routing table chooses; never resolves or races names. */
  static connect(path: UpstreamPath, pool: BufferPool): Upstream {
    return new Upstream(pool, (onread) =>
      connect({
        ...HALF_OPEN,
        onread,
        host: path.address.toString(),
        port: path.port,
        family: path.address.family,
        autoSelectFamily: false,
      }),
    );
  }

  /** As {@link Upstream.connect} with a descriptor that was made elsewhere, bound to a source or marked; it is adopted. */
  static adopt(fd: number, path: UpstreamPath, pool: BufferPool): Upstream {
    return new Upstream(pool, (onread) => {
      const socket = new Socket({ ...HALF_OPEN, onread, fd });
      return socket.connect({ host: path.address.toString(), port: path.port, family: path.address.family });
    });
  }

  /** From now on bytes are read and given to `take`; when it returns false reading stops until `socket.resume()`. */
  start(take: (chunk: Uint8Array) => boolean): void {
    this.#take = take;
    this.socket.resume();
  }

  destroy(): void {
    this.socket.destroy();
  }

  /** Tells whether bytes of the buffer lie in another socket's queue: so long it is not used for anyone else. */
  lend(isLent: boolean): void {
    this.#isLent = isLent;
    this.#release();
  }

  #release(): void {
    if (this.#isLent || this.#isReleased || !this.socket.closed) return;
    this.#isReleased = true;
    this.#pool.giveBack(this.#buffer);
  }
}
