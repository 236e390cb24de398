import type { Socket } from "node:net";
import { type AbortOptions, pause } from "#base/async";
import { describeError } from "#base/errors";
import type { IpAddress } from "#base/ip";
import type { NetNsRef } from "#kernel/netns";
import { connectInside, InsideError, readAll } from "#lab/inside";
import { ECHO_PORT, WHO_PORT } from "./egress-hosts.ts";

/** Timeout of a connect under load, in milliseconds: longer than a lost SYN and two retransmissions. */
const CONNECT_MS = 5000;
const ECHO_EVERY_MS = 200;
const TICK_MS = 10;
/** Maximum number of connects that wait at a time. */
const MAX_OPEN = 2000;

/** The address that a server saw, or the reason why there is none. */
export type SourceSeen = { readonly source: string } | { readonly error: string };

/** Connects and reads which address the server saw. A failure is a result. Rejects with the signal's reason. */
export async function seenSource(
  from: NetNsRef,
  address: IpAddress,
  options: AbortOptions & { readonly timeoutMs: number },
): Promise<SourceSeen> {
  try {
    const socket = await connectInside(from, { address, port: WHO_PORT }, options);
    return { source: (await readAll(socket, options)).trim() };
  } catch (error) {
    if (!(error instanceof InsideError)) throw error;
    return { error: describeError(error) };
  }
}

/** A connection that echoes a few bytes five times a second until it is closed or ends. */
export class Stream implements Disposable {
  /** The address that the server saw. */
  readonly source: string;
  readonly #socket: Socket;
  readonly #timer: NodeJS.Timeout;
  #echoedMs = performance.now();
  #isEnded = false;

  private constructor(socket: Socket, source: string) {
    this.source = source;
    this.#socket = socket;
    socket.on("data", () => {
      this.#echoedMs = performance.now();
    });
    const end = (): void => {
      this.#isEnded = true;
    };
    socket.on("end", end);
    socket.on("close", end);
    this.#timer = setInterval(() => socket.write("echo"), ECHO_EVERY_MS);
  }

  /** Rejects with `InsideError` and with the signal's reason. */
  static async open(from: NetNsRef, address: IpAddress, { signal }: AbortOptions): Promise<Stream> {
    const socket = await connectInside(from, { address, port: ECHO_PORT }, { signal, timeoutMs: CONNECT_MS });
    const late = setTimeout(() => socket.destroy(), CONNECT_MS);
    try {
      const line = await new Promise<string>((resolve, reject) => {
        socket.once("data", (bytes: Buffer) => resolve(String(bytes)));
        socket.once("close", () => reject(new InsideError("failed", `the stream to ${address} ended before a byte`)));
      });
      return new Stream(socket, line.trim());
    } finally {
      clearTimeout(late);
    }
  }

  /** True if the connection has ended. */
  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** Returns true if bytes came back since a time of `performance.now()`. */
  hasEchoedSince(ms: number): boolean {
    return !this.#isEnded && this.#echoedMs > ms;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.#socket.destroy();
  }
}

/** One connect of a {@link ConnectLoad}; times are those of `performance.now()`. */
export interface Connect {
  readonly startedMs: number;
  readonly tookMs: number;
  readonly seen: SourceSeen;
}

/** Connects from several pods, in turn, at a fixed rate until {@link ConnectLoad.stop}. */
export class ConnectLoad {
  readonly #connects: Connect[] = [];
  readonly #running: Promise<void>;
  #isStopped = false;

  constructor(
    at: { readonly from: readonly NetNsRef[]; readonly address: IpAddress; readonly perSecond: number },
    options: { readonly signal: AbortSignal },
  ) {
    this.#running = this.#run(at, options);
    // A failure is reported by `stop`.
    this.#running.catch(() => undefined);
  }

  /** Stops and returns every connect, after the last one is done. Rejects with the signal's reason. */
  async stop(): Promise<readonly Connect[]> {
    this.#isStopped = true;
    await this.#running;
    return this.#connects;
  }

  async #run(
    at: { readonly from: readonly NetNsRef[]; readonly address: IpAddress; readonly perSecond: number },
    { signal }: { readonly signal: AbortSignal },
  ): Promise<void> {
    const open = new Set<Promise<void>>();
    const beganMs = performance.now();
    for (let made = 0; !this.#isStopped; ) {
      signal.throwIfAborted();
      const due = Math.floor(((performance.now() - beganMs) * at.perSecond) / 1000);
      for (; made < due && open.size < MAX_OPEN; made += 1) {
        const from = at.from[made % at.from.length];
        if (from === undefined) throw new Error("a load has clients");
        const one = this.#connect(from, at.address, signal).finally(() => open.delete(one));
        open.add(one);
      }
      await pause(TICK_MS, { signal });
    }
    await Promise.all(open);
  }

  async #connect(from: NetNsRef, address: IpAddress, signal: AbortSignal): Promise<void> {
    const startedMs = performance.now();
    const seen = await seenSource(from, address, { signal, timeoutMs: CONNECT_MS });
    this.#connects.push({ startedMs, tookMs: performance.now() - startedMs, seen });
  }
}
