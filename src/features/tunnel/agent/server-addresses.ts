import { isIP } from "node:net";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import { formatHostPort, type HostPort } from "#wire/http-connect";
import { LinkError, type OpenedStream } from "../link/outgoing.ts";
import { AddressRace } from "./address-race.ts";

/** The maximum number of addresses that are used of one name. */
const MAX_ADDRESSES = 64;

/** Streams in a row that an address with a stream may give to no avail, where it must be a balancer's. */
const QUICK_TRIES = 20;
/** After these, and where each server may have an address of its own, such an address is tried in one of so many rounds. */
const RARELY = 10;

/** One address of a configured server or balancer. */
export interface ServerAddress extends HostPort {
  /** The configured name: TLS sends it as SNI and verifies it, unless overridden. */
  readonly name: string;
}

export interface ServerAddressesDeps {
  readonly clock: Pick<Clock, "after">;
  /** Opens one stream. Rejects with {@link LinkError}. */
  readonly connect: (server: ServerAddress, options: { readonly signal: AbortSignal }) => Promise<OpenedStream>;
  /** Resolves a name to all its addresses. */
  readonly resolve: (host: string, options: { readonly signal: AbortSignal }) => Promise<readonly string[]>;
}

export interface ConnectRound {
  readonly signal: AbortSignal;
  /** The number of servers that there are. With as many addresses, or more, each server may have one of its own. */
  readonly servers: number;
  /** Returns true if a stream leads to a server that has none yet. Default: always. */
  readonly isNew?: (stream: OpenedStream) => boolean;
  /** Called if no address without a stream answers, with the last error, before one that has a stream is tried. */
  readonly onUnanswered?: (error: LinkError) => void;
}

/**
 * The addresses of servers (docs/spec/tunnel.md#11): several configured addresses, all addresses that a name resolves to, or the address of
 * a balancer. Addresses without a live stream are tried first; of these, the address that was tried longest ago is first.
 */
export class ServerAddresses {
  readonly #deps: ServerAddressesDeps;
  readonly #servers: readonly HostPort[];
  /** Number of open streams by address. */
  readonly #live = new Map<string, number>();
  /** The number of the last attempt of each address; see {@link #tries}. */
  #triedAt = new Map<string, number>();
  #tries = 0;
  /** The number of rounds, for each address with a stream, in which the address gave no further server or was passed over since the last change of a stream. */
  readonly #fruitless = new Map<string, number>();

  constructor(deps: ServerAddressesDeps, servers: readonly HostPort[]) {
    this.#deps = deps;
    this.#servers = servers;
  }

  /**
   * Opens a stream to the first address that leads to a new server; `undefined` if only servers have answered that have one. They are tried in the
   * order of {@link ServerAddresses}, the next one when one has failed, and beside one that is silent. If no address answers that has no stream, or all
   * are silent, one with a stream may be tried, the one tried longest ago: a balancer may lead to another server. That is so in few rounds where each
   * server may have an address of its own: else all agents would load the others for as long as one server is down. Rejects with the last
   * {@link LinkError}.
   */
  async connect(round: ConnectRound): Promise<OpenedStream | undefined> {
    const { isNew = () => true } = round;
    const addresses = this.#inOrder(await this.#addresses(round.signal));
    const isLive = (address: ServerAddress): boolean => this.#live.has(formatHostPort(address));
    const isQuick = addresses.length < round.servers;
    const others = addresses.filter((address) => !isLive(address));
    // Where all have one, each round is for a balancer.
    if (others.length === 0) return await this.#tryLive(addresses[0], isNew, round);
    let due: readonly ServerAddress[] | undefined;
    const balancers = (): readonly ServerAddress[] => {
      due ??= addresses.filter(isLive).filter((address) => this.#isDue(formatHostPort(address), isQuick));
      return due;
    };
    const beside = (known: ReadonlySet<ServerAddress>): ServerAddress | undefined => {
      const isFirst = due === undefined;
      const may = (address: ServerAddress): boolean => this.#isQuick(formatHostPort(address), isQuick);
      return this.#inOrder([...balancers(), ...known]).find(
        (address) => (isFirst && !known.has(address)) || may(address),
      );
    };
    const deps = {
      clock: this.#deps.clock,
      attempt: (address: ServerAddress, options: { readonly signal: AbortSignal }) => this.#try(address, options),
      isNew,
      beside,
    };
    const result = await AddressRace.run(others, deps, round);
    const { stream, error } = result;
    if (stream !== undefined || result.hasKnown || error === undefined) return stream;
    const [live] = balancers();
    if (live === undefined) throw error;
    round.onUnanswered?.(error);
    if (result.beside === "known") return undefined;
    if (result.beside !== undefined) throw result.beside;
    return await this.#tryLive(live, isNew, round);
  }

  async #tryLive(
    address: ServerAddress | undefined,
    isNew: (stream: OpenedStream) => boolean,
    round: ConnectRound,
  ): Promise<OpenedStream | undefined> {
    if (address === undefined) throw new LinkError("unreachable", "DNS has no address of a proxy server");
    const stream = await this.#try(address, round);
    if (isNew(stream)) return stream;
    stream.discard();
    return undefined;
  }

  /** True for the first rounds where an address must be a balancer's. */
  #isQuick(address: string, isQuick: boolean): boolean {
    return (this.#fruitless.get(address) ?? 0) < (isQuick ? QUICK_TRIES : 0);
  }

  #isDue(address: string, isQuick: boolean): boolean {
    const past = this.#fruitless.get(address) ?? 0;
    const quick = isQuick ? QUICK_TRIES : 0;
    if (this.#isQuick(address, isQuick) || (past - quick) % RARELY === RARELY - 1) return true;
    this.#fruitless.set(address, past + 1);
    return false;
  }

  async #try(address: ServerAddress, { signal }: Pick<ConnectRound, "signal">): Promise<OpenedStream> {
    signal.throwIfAborted();
    this.#tries += 1;
    this.#triedAt.set(formatHostPort(address), this.#tries);
    return this.#tracked(formatHostPort(address), await this.#deps.connect(address, { signal }));
  }

  async #addresses(signal: AbortSignal): Promise<ServerAddress[]> {
    const found: ServerAddress[] = [];
    const errors: unknown[] = [];
    for (const { host, port } of this.#servers) {
      try {
        const addresses = isIP(host) === 0 ? await this.#deps.resolve(host, { signal }) : [host];
        found.push(...addresses.slice(0, MAX_ADDRESSES).map((address) => ({ host: address, port, name: host })));
      } catch (error) {
        // Other names may still resolve.
        errors.push(error);
      }
      signal.throwIfAborted();
    }
    if (found.length === 0 && errors.length > 0) {
      throw new LinkError("unreachable", `cannot resolve a proxy server: ${describeError(errors[0])}`, {
        cause: errors[0],
      });
    }
    const current = new Set(found.map(formatHostPort));
    this.#triedAt = new Map([...this.#triedAt].filter(([address]) => current.has(address)));
    for (const address of this.#fruitless.keys()) if (!current.has(address)) this.#fruitless.delete(address);
    return [...new Map(found.map((address) => [formatHostPort(address), address])).values()];
  }

  #inOrder(addresses: readonly ServerAddress[]): ServerAddress[] {
    const at = (address: ServerAddress): number => this.#triedAt.get(formatHostPort(address)) ?? 0;
    return addresses.toSorted((a, b) => at(a) - at(b));
  }

  /** The stream, counted in {@link #live} from its start to its end. */
  #tracked(address: string, stream: OpenedStream): OpenedStream {
    return {
      headers: stream.headers,
      pulse: stream.pulse,
      onLeaving: (callback) => stream.onLeaving(callback),
      discard: () => {
        this.#fruitless.set(address, (this.#fruitless.get(address) ?? 0) + 1);
        stream.discard();
      },
      start: (handlers) => {
        this.#fruitless.clear();
        this.#live.set(address, (this.#live.get(address) ?? 0) + 1);
        return stream.start({
          ...handlers,
          onClosed: (fault) => {
            this.#fruitless.clear();
            const left = (this.#live.get(address) ?? 1) - 1;
            if (left > 0) this.#live.set(address, left);
            else this.#live.delete(address);
            handlers.onClosed(fault);
          },
        });
      },
    };
  }
}
