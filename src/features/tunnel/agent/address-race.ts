import type { Clock } from "#base/clock";
import { LinkError, type OpenedStream } from "../link/outgoing.ts";

/** An address that has not answered for so long, in milliseconds, is waited for no longer alone: the next one is tried beside it. */
const AHEAD_MS = 500;

export interface AddressRaceDeps<A> {
  readonly clock: Pick<Clock, "after">;
  /** Opens a stream. Rejects with {@link LinkError}; an abort rejects with its reason. */
  readonly attempt: (address: A, options: { readonly signal: AbortSignal }) => Promise<OpenedStream>;
  /** Returns true if a stream leads to a server that has none yet. */
  readonly isNew: (stream: OpenedStream) => boolean;
  /**
   * A further address, to be tried beside those that are silent, after all others: one that may lead to any server. Asked again after each answer of a
   * server that has a stream. `known`: those of the race that have given such an answer.
   */
  readonly beside: (known: ReadonlySet<A>) => A | undefined;
}

/** The end of a race. Without a stream all addresses have answered. */
export interface RaceResult {
  readonly stream: OpenedStream | undefined;
  /** Servers have answered that have a stream already. */
  readonly hasKnown: boolean;
  /** The last failure of an address of the race. */
  readonly error: LinkError | undefined;
  /** The outcome of the last address of {@link AddressRaceDeps.beside}; `undefined` if there was none. */
  readonly beside: "known" | LinkError | undefined;
}

/**
 * Tries addresses in their order, the next one when one has failed, and beside one that is silent, until one leads to a new server. The answer of a
 * server that has a stream ends nothing: one that is slow, or has many agents in its queue, would be given up for it again and again. Rejects with the
 * signal's reason; no attempt is left then.
 */
export class AddressRace<A> {
  readonly #addresses: readonly A[];
  readonly #deps: AddressRaceDeps<A>;
  readonly #signal: AbortSignal;
  readonly #losers = new AbortController();
  readonly #result = Promise.withResolvers<RaceResult>();
  readonly #known = new Set<A>();
  #next = 0;
  #pending = 0;
  #isOver = false;
  #error: LinkError | undefined;
  #beside: "known" | LinkError | undefined;
  #cancel = (): void => undefined;

  private constructor(addresses: readonly A[], deps: AddressRaceDeps<A>, signal: AbortSignal) {
    this.#addresses = addresses;
    this.#deps = deps;
    this.#signal = AbortSignal.any([signal, this.#losers.signal]);
  }

  static run<A>(
    addresses: readonly A[],
    deps: AddressRaceDeps<A>,
    { signal }: { readonly signal: AbortSignal },
  ): Promise<RaceResult> {
    const race = new AddressRace(addresses, deps, signal);
    race.#goOn();
    return race.#result.promise;
  }

  /** The next address, or the end if there is none and none is under way. */
  #goOn(): void {
    this.#cancel();
    const address = this.#addresses[this.#next];
    if (address === undefined && this.#pending === 0) {
      this.#end(undefined);
      return;
    }
    if (address !== undefined) {
      this.#next += 1;
      this.#try(address, (how) => {
        if (how === "known") this.#known.add(address);
        else this.#error = how;
        this.#goOn();
      });
    }
    this.#cancel = this.#deps.clock.after(AHEAD_MS, () => this.#tryBeside());
  }

  #tryBeside(): void {
    if (this.#next < this.#addresses.length) {
      this.#goOn();
      return;
    }
    const address = this.#deps.beside(this.#known);
    if (address === undefined) return;
    this.#try(address, (how) => {
      this.#beside = how;
      if (how === "known") this.#goOn();
      else if (this.#pending === 0) this.#end(undefined);
    });
  }

  #try(address: A, onSettled: (how: "known" | LinkError) => void): void {
    this.#pending += 1;
    this.#deps.attempt(address, { signal: this.#signal }).then(
      (stream) => {
        this.#pending -= 1;
        if (!this.#isOver && this.#deps.isNew(stream)) {
          this.#end(stream);
          return;
        }
        stream.discard();
        if (!this.#isOver) onSettled("known");
      },
      (error: unknown) => {
        this.#pending -= 1;
        if (this.#isOver) return;
        if (error instanceof LinkError) onSettled(error);
        else {
          this.#stop();
          this.#result.reject(error);
        }
      },
    );
  }

  #stop(): void {
    this.#isOver = true;
    this.#cancel();
    this.#losers.abort();
  }

  #end(stream: OpenedStream | undefined): void {
    this.#stop();
    this.#result.resolve({ stream, hasKnown: this.#known.size > 0, error: this.#error, beside: this.#beside });
  }
}
