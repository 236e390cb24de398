import { type Entry, LinkedSet } from "#base/collections";

/** A connection that can be ended. */
interface Client {
  destroy(): unknown;
  once(event: "close", listener: () => void): unknown;
}

/**
 * The clients of a UNIX socket that have sent no request yet. Whoever has the rights of the socket's group may open some, and they have no address by which to tell them
 * apart: at the bound the oldest gives its place up. A client in order sends its request at once.
 */
export class WaitingFrontends {
  readonly #max: number;
  readonly #waiting = new LinkedSet<Client>();

  /** `max`: 1 or more. */
  constructor(max: number) {
    this.#max = max;
  }

  /** Gives a new client a place. The returned function gives the place back, when its request has come. */
  admit(client: Client): () => void {
    const entry: Entry = this.#waiting.add(client);
    const leave = (): void => entry.remove();
    client.once("close", leave);
    if (this.#waiting.size > this.#max) this.#waiting.shift()?.destroy();
    return leave;
  }
}
