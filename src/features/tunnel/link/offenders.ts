import type { Clock } from "#base/clock";
import { groupOf } from "#base/places";
import type { TransportPeer } from "../http2/transport.ts";

/**
 * How long who was sent away for a flood is refused, in milliseconds. The bursts that each connection may send are then no more, in the long run, than what one that stays may
 * send.
 */
export const REST_MS = 10_000;
/** Offenders that are remembered. With more, the one that came first is forgotten. */
const MAX_OFFENDERS = 4096;

export interface OffendersOptions {
  /** Addresses behind which many clients are that nobody tells apart. Default: none. */
  readonly isShared?: ((address: string) => boolean) | undefined;
}

/**
 * Who was sent away for a flood. Limits of a connection begin anew with the next one, so whoever exceeds one, known by address (of IPv6 the /64) and certificate, is refused for a while.
 */
export class Offenders {
  readonly #clock: Pick<Clock, "monotonic">;
  readonly #isShared: (address: string) => boolean;
  /** Until when each is refused, `Clock.monotonic` milliseconds. The first one ends first. */
  readonly #until = new Map<string, number>();

  constructor(clock: Pick<Clock, "monotonic">, { isShared = () => false }: OffendersOptions = {}) {
    this.#clock = clock;
    this.#isShared = isShared;
  }

  /** The peer was sent away. */
  note(peer: TransportPeer): void {
    const who = this.#identityOf(peer);
    if (who === undefined) return;
    this.#until.delete(who);
    this.#until.set(who, this.#clock.monotonic() + REST_MS);
    for (const [first] of this.#until) {
      if (this.#until.size <= MAX_OFFENDERS) break;
      this.#until.delete(first);
    }
  }

  /** For how long the peer is refused, in milliseconds; 0: it is not. */
  restOf(peer: TransportPeer): number {
    if (this.#until.size === 0) return 0;
    const now = this.#clock.monotonic();
    for (const [who, until] of this.#until) {
      if (until > now) break;
      this.#until.delete(who);
    }
    const until = this.#until.get(this.#identityOf(peer) ?? "");
    return until === undefined ? 0 : until - now;
  }

  /** `undefined` for those that nobody can tell apart: clients of a UNIX socket, and of a balancer that does not say whose a connection is. */
  #identityOf({ address, balancer, commonName = "" }: TransportPeer): string | undefined {
    const host = address.slice(0, Math.max(0, address.lastIndexOf(":")));
    if (host === "" || (balancer === undefined && this.#isShared(host))) return undefined;
    return `${groupOf(host)} ${commonName}`;
  }
}
