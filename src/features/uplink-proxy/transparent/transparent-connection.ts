import type { ByteStream } from "#base/byte-stream";
import type { Clock } from "#base/clock";
import { IpAddress } from "#base/ip";
import type { ListenerSettings } from "#base/uplink-model";
import { EarlyPayload, type TunnelService } from "../front/index.ts";
import { addressDestination } from "../policy/index.ts";
import { wantedName } from "./wanted-name.ts";

/** A client that has sent nothing by then gets a tunnel without a name, in milliseconds. */
const SPEAK_FIRST_MS = 100;

/**
 * A redirected connection: its local address is the destination of the client (docs/spec/uplink-proxy.md#14). It is
 * served like a CONNECT to that address. A failure becomes a reset.
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

  /** Resolves when the tunnel has begun or has failed. */
  async run(): Promise<void> {
    const { localAddress, localPort } = this.#client;
    const address = IpAddress.tryParse(localAddress.split("%", 1)[0] ?? "");
    // A client that connected to the listener itself was not redirected: a tunnel would lead back to us.
    if (address === undefined || (localPort === this.#listener.port && address.equals(this.#listener.address))) {
      this.#client.reset();
      return;
    }
    const early = new EarlyPayload(this.#client, new Uint8Array(0));
    const name = await this.#wantedName(early);
    const destination = addressDestination(address, localPort);
    const result = await this.#tunnelService.open({
      client: this.#client,
      // The address is dialled; the name is used for penalties and logs.
      destination: name === undefined ? destination : { ...destination, text: `${name}:${localPort}` },
      listener: this.#listener,
      early,
      // The client gets no error answer here, so safe requests are replayed too.
      replay: "request",
      startedAt: this.#clock.monotonic(),
      onConnected: () => undefined,
      onClosed: () => undefined,
    });
    if (result.kind === "opened") return;
    early.release();
    this.#client.reset();
  }

  /** Clients of TLS and HTTP send first. A client that waits for the server is delayed only for a short time. */
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
