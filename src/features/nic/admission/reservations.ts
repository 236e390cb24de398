import type { Clock } from "#base/clock";

/** How long an admitted pod counts without a claim, in milliseconds. */
export const RESERVATION_MS = 30_000;
/** The most reservations; the oldest goes first. The controller checks the quota once more. */
export const MAX_RESERVATIONS = 10_000;

interface Reservation {
  readonly tenant: string;
  readonly ports: number;
  readonly podUID: string | undefined;
  readonly expiresAt: number;
}

/** Ports of pods that were admitted, and whose claims are not seen yet (docs/spec/vpc-nics.md#4). By the uid of the admission request. */
export class Reservations {
  readonly #clock: Clock;
  readonly #byRequest = new Map<string, Reservation>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The number of reservations, expired ones included until the next call of another method. */
  get size(): number {
    return this.#byRequest.size;
  }

  /** The reserved ports of a tenant, without those of a request itself and of pods that have a claim. */
  portsOf(
    tenant: string,
    except: { readonly request: string; readonly hasClaim: (podUID: string) => boolean },
  ): number {
    this.#expire();
    let ports = 0;
    for (const [request, one] of this.#byRequest) {
      const isClaimed = one.podUID !== undefined && except.hasClaim(one.podUID);
      if (one.tenant === tenant && request !== except.request && !isClaimed) ports += one.ports;
    }
    return ports;
  }

  /** Reserves ports for {@link RESERVATION_MS}. The same request again replaces its reservation. */
  add(request: string, init: Omit<Reservation, "expiresAt">): void {
    this.#expire();
    this.#byRequest.delete(request);
    for (const oldest of this.#byRequest.keys()) {
      if (this.#byRequest.size < MAX_RESERVATIONS) break;
      this.#byRequest.delete(oldest);
    }
    this.#byRequest.set(request, { ...init, expiresAt: this.#clock.monotonic() + RESERVATION_MS });
  }

  /** All have the same life, so the first one that has not expired ends the search. */
  #expire(): void {
    const now = this.#clock.monotonic();
    for (const [request, { expiresAt }] of this.#byRequest) {
      if (expiresAt > now) break;
      this.#byRequest.delete(request);
    }
  }
}
