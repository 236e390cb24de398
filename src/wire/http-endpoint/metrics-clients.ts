import { type Cidr, socketAddress, unmappedCidr } from "#base/ip";

/** Both ends of a connection, as the kernel names them. */
export interface ConnectionEnds {
  /** The client's address. */
  readonly from: string | undefined;
  /** The address that the client connected to. */
  readonly to: string | undefined;
}

/** The clients that may read metrics and profiles: those of some ranges, and always those of this machine. */
export class MetricsClients {
  readonly #ranges: readonly Cidr[];
  readonly #onRefused: () => void;

  /** Without ranges everybody may. `onRefused` is called for each connection or request that is refused. */
  constructor(ranges: readonly Cidr[], { onRefused }: { readonly onRefused: () => void }) {
    this.#ranges = ranges.map(unmappedCidr);
    this.#onRefused = onRefused;
  }

  /** True if the client may read. A client that is gone already has no address, and may not. */
  admits({ from, to }: ConnectionEnds): boolean {
    if (this.#ranges.length === 0) return true;
    const client = socketAddress(from);
    if (client !== undefined) {
      // The kernel answers from nowhere else to an address of its own, whatever a packet says.
      const isOwn = client.isLoopback || socketAddress(to)?.equals(client) === true;
      if (isOwn || this.#ranges.some((range) => range.contains(client))) return true;
    }
    this.#onRefused();
    return false;
  }
}
