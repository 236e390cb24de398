import { DrainedMap } from "#base/collections";
import type { DialRequest, TunnelId } from "#wire/konnectivity";
import type { LinkMux } from "../mux/link-mux.ts";
import { AcceptedConnection, type AcceptedConnectionOptions, type ConnectEndpoint } from "./accepted-connection.ts";

/** The decision about a dial of the peer. */
export type DialDecision =
  | {
      readonly kind: "connect";
      readonly connect: ConnectEndpoint;
    }
  | { readonly kind: "refuse"; readonly error: string };

export interface DialAcceptorOptions extends AcceptedConnectionOptions {
  /** Decides synchronously: no name is resolved before the dial is allowed. */
  readonly decide: (request: DialRequest) => DialDecision;
  /** Maximum of dials without an outcome; further dials are refused. */
  readonly maxPendingDials: number;
  /** Receives an error for which `failureText` returned `undefined`. */
  readonly onBug: (error: unknown) => void;
}

/** Handles the dials of the peer on one link until each is connected or has failed. */
export class DialAcceptor {
  readonly #mux: LinkMux;
  readonly #options: DialAcceptorOptions;
  readonly #dialling = new DrainedMap<TunnelId, AcceptedConnection>();

  constructor(mux: LinkMux, options: DialAcceptorOptions) {
    this.#mux = mux;
    this.#options = options;
  }

  get pending(): number {
    return this.#dialling.size;
  }

  /** Handles DIAL_REQ. Returns at once. */
  accept(request: DialRequest): void {
    const { random } = request;
    if (this.#dialling.has(random)) {
      this.#mux.refuse(random, "another dial with the same random is pending");
      return;
    }
    if (this.#dialling.size >= this.#options.maxPendingDials) {
      this.#mux.refuse(random, "too many pending dials");
      return;
    }
    const decision = this.#options.decide(request);
    if (decision.kind === "refuse") {
      this.#mux.refuse(random, decision.error);
      return;
    }
    const connection = new AcceptedConnection(this.#mux, random, this.#options);
    this.#dialling.set(random, connection);
    connection
      .run(decision.connect)
      .catch(this.#options.onBug)
      .finally(() => {
        if (this.#dialling.get(random) === connection) this.#dialling.delete(random);
      });
  }

  /** Handles DIAL_CLS, by which the peer cancels its own dial. */
  cancel(random: TunnelId): void {
    this.#dialling.get(random)?.cancel();
    this.#dialling.delete(random);
  }

  /** Aborts all pending dials, because the link has ended. */
  linkLost(): void {
    const connections = this.#dialling.values();
    this.#dialling.clear();
    for (const connection of connections) connection.onLinkLost();
  }
}
