import { type NetworkInterfaceInfo, networkInterfaces } from "node:os";
import type { Clock } from "#base/clock";
import type { IpAddress } from "#base/ip";

/** For how long the kernel's answer is used, in milliseconds. A node can have thousands of addresses, and any neighbour can cause a question. */
const FRESH_MS = 1000;

/** The source of the kernel's addresses: `node:os`. */
export type Interfaces = () => Readonly<Record<string, readonly Pick<NetworkInterfaceInfo, "address">[] | undefined>>;

/**
 * The addresses of this machine, as far as their interfaces are up. A packet with one of them as its source comes from here: Linux drops those that come
 * in from outside (`accept_local` of ip-sysctl is off by default).
 */
export class OwnAddresses {
  readonly #clock: Clock;
  readonly #interfaces: Interfaces;
  readonly #onFault: (error: unknown) => void;
  #known: ReadonlySet<string> = new Set();
  #askedAt = Number.NEGATIVE_INFINITY;

  /** `onFault` is called, at most once a second, when the kernel does not tell, as without a free descriptor; what was known holds then. */
  constructor(
    deps: { readonly clock: Clock; readonly onFault: (error: unknown) => void },
    interfaces: Interfaces = networkInterfaces,
  ) {
    this.#clock = deps.clock;
    this.#onFault = deps.onFault;
    this.#interfaces = interfaces;
  }

  /** Returns true if an address is one of this machine now. One that is newer than a second may be missed. */
  has(address: IpAddress): boolean {
    const now = this.#clock.monotonic();
    if (now - this.#askedAt >= FRESH_MS) {
      this.#askedAt = now;
      this.#ask();
    }
    return this.#known.has(address.toString());
  }

  #ask(): void {
    try {
      this.#known = new Set(Object.values(this.#interfaces()).flatMap((all) => (all ?? []).map((one) => one.address)));
    } catch (error) {
      if (!(error instanceof Error && "syscall" in error)) throw error;
      this.#onFault(error);
    }
  }
}
