import type { Http2Session } from "node:http2";

/**
 * The places of a server's connections. At the limit the next connection takes the place of the one that has been without a call for longest, as those of a
 * runtime that forgets to close them. A connection with a call keeps its place, since what the call has begun would be undone.
 */
export class SessionPlaces {
  readonly #max: number;
  /** The calls under way of each connection, in the order in which the connections got a call or lost one. */
  readonly #calls = new Map<Http2Session, number>();

  /** `max`: 1 or more. */
  constructor(max: number) {
    this.#max = max;
  }

  /** Gives a connection a place. Returns the connection that has none now, which the caller has to end: the new one itself if all others have calls. */
  take(session: Http2Session): Http2Session | undefined {
    const loser = this.#calls.size < this.#max ? undefined : (this.#idle() ?? session);
    if (loser !== undefined) this.#calls.delete(loser);
    if (loser !== session) this.#calls.set(session, 0);
    return loser;
  }

  /** A call begins. */
  begin(session: Http2Session): void {
    this.#count(session, 1);
  }

  /** A call that has begun is over. */
  end(session: Http2Session): void {
    this.#count(session, -1);
  }

  leave(session: Http2Session): void {
    this.#calls.delete(session);
  }

  /** All connections of now. */
  [Symbol.iterator](): IterableIterator<Http2Session> {
    return [...this.#calls.keys()].values();
  }

  #count(session: Http2Session, more: 1 | -1): void {
    const calls = this.#calls.get(session);
    if (calls === undefined) return;
    this.#calls.delete(session);
    this.#calls.set(session, calls + more);
  }

  #idle(): Http2Session | undefined {
    for (const [session, calls] of this.#calls) if (calls === 0) return session;
    return undefined;
  }
}
