import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { IpAddress, IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import type { ClientPlace } from "./client-places.ts";
import type { OnDatagram, ProbeSocket } from "./probe-socket.ts";

const FAMILIES: readonly IpFamily[] = [4, 6];
/** Open sockets; one more closes the one that was used longest ago. */
const MAX_SOCKETS = 500;
/** A socket that sends nothing for this time is closed, milliseconds. */
const IDLE_MS = 30_000;
/** A socket that has failed is opened again after this time, milliseconds. */
const REOPEN_MS = 60_000;

/** The sockets of clients for probes: one for each client that has sent some lately and each of its families, at most 500. */
export class ProbeSockets {
  readonly #parts: ConstructorParameters<typeof ProbeSockets>[0];
  /** The open sockets by UID and family, in the order of their last use. */
  readonly #open = new Map<string, { readonly socket: ProbeSocket; readonly usedAt: number }>();
  /** When sockets that have failed are opened again, by UID and family. */
  readonly #reopenAt = new Map<string, number>();

  constructor(parts: {
    /** Throws an `ExpectedError` if the client cannot send. */
    readonly openSocket: (place: ClientPlace, address: IpAddress, onDatagram: OnDatagram) => ProbeSocket;
    readonly onDatagram: OnDatagram;
    readonly log: Logger;
    readonly clock: Clock;
  }) {
    this.#parts = parts;
  }

  /** The socket of a client with this address; `undefined` if it has none and cannot have one now. */
  of({ uid, place }: { readonly uid: string; readonly place: ClientPlace }, address: IpAddress) {
    const key = `${uid} ${address.family}`;
    const now = this.#parts.clock.monotonic();
    this.#closeIdle(now);
    const known = this.#open.get(key);
    if (known?.socket.isOpen === true) return this.#used(key, known.socket, now);
    if (known !== undefined) {
      this.#close(key);
      this.#reopenAt.set(key, now + REOPEN_MS);
    }
    if (now < (this.#reopenAt.get(key) ?? 0)) return undefined;
    this.#reopenAt.delete(key);
    try {
      return this.#used(key, this.#parts.openSocket(place, address, this.#parts.onDatagram), now);
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      this.#parts.log.debug("a client cannot send probes", { uid, error: error.message });
      return undefined;
    }
  }

  #used(key: string, socket: ProbeSocket, usedAt: number): ProbeSocket {
    this.#open.delete(key);
    this.#open.set(key, { socket, usedAt });
    const [oldest] = this.#open.keys();
    if (oldest !== undefined && this.#open.size > MAX_SOCKETS) this.#close(oldest);
    return socket;
  }

  #closeIdle(now: number): void {
    for (const [key, { usedAt }] of this.#open) {
      if (now - usedAt < IDLE_MS) return;
      this.#close(key);
    }
  }

  /** Closes what a client has. */
  forget(uid: string): void {
    for (const family of FAMILIES) {
      this.#close(`${uid} ${family}`);
      this.#reopenAt.delete(`${uid} ${family}`);
    }
  }

  /** Closes all sockets. */
  close(): void {
    for (const key of [...this.#open.keys()]) this.#close(key);
  }

  #close(key: string): void {
    this.#open.get(key)?.socket[Symbol.dispose]();
    this.#open.delete(key);
  }
}
