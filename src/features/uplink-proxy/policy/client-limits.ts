import type { Clock } from "#base/clock";
import { TokenBucket } from "#base/rate-limit";

/** Maximum number of clients that are remembered; a client without a tunnel is forgotten first. */
const MAX_CLIENTS = 4096;

interface Client {
  tunnels: number;
  readonly bucket: TokenBucket;
}

/** Limits of one client address of the pod listener: tunnels at once, and CONNECTs a second (docs/spec/uplink-proxy.md#9.1). */
export class ClientLimits {
  readonly #clock: Clock;
  readonly #limits: () => { readonly podTunnelsPerClient: number; readonly podConnectsPerSecond: number };
  readonly #clients = new Map<string, Client>();

  constructor(
    clock: Clock,
    limits: () => { readonly podTunnelsPerClient: number; readonly podConnectsPerSecond: number },
  ) {
    this.#clock = clock;
    this.#limits = limits;
  }

  get size(): number {
    return this.#clients.size;
  }

  /** Counts a tunnel of the client, or refuses it. Call the matching release when the tunnel has ended. */
  tryTake(address: string): boolean {
    const client = this.#clientOf(address);
    if (client === undefined || !client.bucket.tryTake()) return false;
    if (client.tunnels >= this.#limits().podTunnelsPerClient) return false;
    client.tunnels += 1;
    return true;
  }

  giveBack(address: string): void {
    const client = this.#clients.get(address);
    if (client !== undefined) client.tunnels -= 1;
  }

  #clientOf(address: string): Client | undefined {
    const known = this.#clients.get(address);
    if (known !== undefined) return known;
    if (this.#clients.size >= MAX_CLIENTS && !this.#forgetOne()) return undefined;
    const rate = this.#limits().podConnectsPerSecond;
    const bucket = new TokenBucket({ ratePerSecond: rate, burst: Math.max(1, rate), clock: this.#clock });
    const client = { tunnels: 0, bucket };
    this.#clients.set(address, client);
    return client;
  }

  #forgetOne(): boolean {
    for (const [address, { tunnels }] of this.#clients) {
      if (tunnels === 0) return this.#clients.delete(address);
    }
    return false;
  }
}
