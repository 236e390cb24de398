import { isIP } from "node:net";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import { formatHostPort, type HostPort } from "#wire/http-connect";
import { LinkError, type OpenedStream } from "../link/outgoing.ts";

/** The maximum number of addresses that are used of one name. */
const MAX_ADDRESSES = 64;

/** An address that has not answered for so long, in milliseconds, is waited for no longer alone: the next one is tried beside it. */
const AHEAD_MS = 500;

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
  /** By address with a stream: rounds in which it gave no further server, or was passed over, since the last change of a stream. */
  readonly #fruitless = new Map<string, number>();

  constructor(deps: ServerAddressesDeps, servers: readonly HostPort[]) {
    this.#deps = deps;
    this.#servers = servers;
  }

  /**
   * Opens a stream to the first address that answers. They are tried in the order of {@link ServerAddresses}, the next one when one has failed, and
   * beside one that is silent. If none does that has no stream, one with a
   * stream may be tried, the one tried longest ago: a balancer may lead to another server. That is so in few rounds where each server may have an
   * address of its own: else all agents would load the others for as long as one server is down. Rejects with the last {@link LinkError}.
   */
  async connect(round: ConnectRound): Promise<OpenedStream> {
    const addresses = this.#inOrder(await this.#addresses(round.signal));
    const isLive = (address: ServerAddress): boolean => this.#live.has(formatHostPort(address));
    const isQuick = addresses.length < round.servers;
    const answer = await this.#firstOf(
      addresses.filter((address) => !isLive(address)),
      round,
    );
    if (!(answer instanceof LinkError) && answer !== undefined) return answer;
    const lives = addresses.filter(isLive);
    // Where all have one, each round is for a balancer.
    const [live] =
      answer === undefined ? lives : lives.filter((address) => this.#isDue(formatHostPort(address), isQuick));
    if (live === undefined) throw answer ?? new LinkError("unreachable", "DNS has no address of a proxy server");
    if (answer !== undefined) round.onUnanswered?.(answer);
    return await this.#try(live, round);
  }

  #isDue(address: string, isQuick: boolean): boolean {
    const past = this.#fruitless.get(address) ?? 0;
    const quick = isQuick ? QUICK_TRIES : 0;
    if (past < quick || (past - quick) % RARELY === RARELY - 1) return true;
    this.#fruitless.set(address, past + 1);
    return false;
  }

  /** A stream to the first of the addresses that answers; the last error if none does; `undefined` if there is none. */
  #firstOf(addresses: readonly ServerAddress[], round: ConnectRound): Promise<OpenedStream | LinkError | undefined> {
    const { promise, resolve, reject } = Promise.withResolvers<OpenedStream | LinkError | undefined>();
    const losers = new AbortController();
    const signal = AbortSignal.any([round.signal, losers.signal]);
    let [next, pending, isOver] = [0, 0, false];
    let last: LinkError | undefined;
    let cancel = (): void => undefined;
    const end = (settle: () => void): void => {
      isOver = true;
      cancel();
      losers.abort();
      settle();
    };
    const attempt = (): void => {
      cancel();
      const address = addresses[next];
      if (address === undefined) {
        if (pending === 0) end(() => resolve(last));
        return;
      }
      next += 1;
      pending += 1;
      this.#try(address, { signal }).then(
        (stream) => {
          if (isOver) stream.discard();
          else end(() => resolve(stream));
        },
        (error: unknown) => {
          pending -= 1;
          if (isOver) return;
          if (!(error instanceof LinkError)) {
            end(() => reject(error));
            return;
          }
          last = error;
          attempt();
        },
      );
      if (next < addresses.length) cancel = this.#deps.clock.after(AHEAD_MS, attempt);
    };
    attempt();
    return promise;
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
