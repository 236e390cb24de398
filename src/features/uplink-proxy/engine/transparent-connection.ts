import type { ByteStream } from "#base/byte-stream";
import type { Clock } from "#base/clock";
import { IpAddress } from "#base/ip";
import type { ListenerSettings } from "#base/uplink-model";
import { EarlyPayload, type TunnelService } from "../front/index.ts";
import { addressDestination } from "../policy/index.ts";
import { wantedName } from "./wanted-name.ts";

/** A client that has not said anything by then is carried without a name, milliseconds. */
const SPEAK_FIRST_MS = 100;

/**
 * A connection that was meant for somebody else: its own local address is where the client wanted to go (docs/spec/uplink-proxy.md#14). It is
 * carried like a CONNECT to that address. There is nobody to tell of a failure: it becomes a reset.
 */
export class TransparentConnection {
  readonly #client: ByteStream;
  readonly #listener: ListenerSettings;
  readonly #tunnelService: TunnelService;
  readonly #clock: Clock;

  constructor(
    client: ByteStream,
    listener: ListenerSettings,
    tunnelService: TunnelService,
    deps: { readonly clock: Clock },
  ) {
    this.#client = client;
    this.#listener = listener;
    this.#tunnelService = tunnelService;
    this.#clock = deps.clock;
  }

  /** Resolves when the tunnel has begun, or came to nothing. */
  async run(): Promise<void> {
    const { localAddress, localPort } = this.#client;
    const address = IpAddress.tryParse(localAddress.replace(/%.*$/, ""));
    // Who came to the listener itself, and was not caught on the way elsewhere, would be sent to us again.
    if (address === undefined || (localPort === this.#listener.port && address.equals(this.#listener.address))) {
      this.#client.reset();
      return;
    }
    const early = new EarlyPayload(this.#client, new Uint8Array(0));
    const name = await this.#wantedName(early);
    const destination = addressDestination(address, localPort);
    const result = await this.#tunnelService.open({
      client: this.#client,
      // The address is what is dialled; the name is what is remembered and logged.
      destination: name === undefined ? destination : { ...destination, text: `${name}:${localPort}` },
      listener: this.#listener,
      early,
      // Nobody is told of a failure here, so that what can be tried again without harm is.
      replay: "request",
      startedAt: this.#clock.monotonic(),
      onConnected: () => undefined,
      onClosed: () => undefined,
    });
    if (result.kind === "opened") return;
    early.release();
    this.#client.reset();
  }

  /** Clients of TLS and HTTP speak first. Who waits for the server to speak is not kept waiting long. */
  async #wantedName(early: EarlyPayload): Promise<string | undefined> {
    const until = this.#clock.monotonic() + SPEAK_FIRST_MS;
    for (;;) {
      const name = wantedName(early.chunks);
      const leftMs = until - this.#clock.monotonic();
      if (name !== "pending") return name;
      if (leftMs <= 0 || early.gone.aborted) return undefined;
      await early.more(leftMs, this.#clock);
    }
  }
}
