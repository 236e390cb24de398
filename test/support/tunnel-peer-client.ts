/**
 * Clients like konnectivity-client, on `@grpc/grpc-js`: single-use, with a session for each dial, and reusable, with one session and a
 * stream for each dial. They report violations of the protocol by the server.
 */
import { Client, type ClientDuplexStream, credentials } from "@grpc/grpc-js";
import {
  type ConnectionPort,
  DialRefused,
  type GrpcPacket,
  type Peer,
  type RunningClient,
  randomDialId,
  TUNNEL_SERVICES,
  TunnelConnection,
  tunnelMethod,
} from "#test/tunnel-peer";

type Call = ClientDuplexStream<GrpcPacket, GrpcPacket>;

const METHOD = tunnelMethod(TUNNEL_SERVICES.proxy, "Proxy");

/** Opens a client of its own for each dial. */
export const singleUseClient: Peer<RunningClient> = {
  name: "grpc-js single-use",
  isOurs: false,
  start: async ({ udsPath }) => new GrpcClient(udsPath, { reusable: false }),
};

/** One session, a stream for each dial. */
export const reusableClient: Peer<RunningClient> = {
  name: "grpc-js reusable",
  isOurs: false,
  start: async ({ udsPath }) => new GrpcClient(udsPath, { reusable: true }),
};

class GrpcClient implements RunningClient {
  readonly violations: string[] = [];
  readonly #udsPath: string;
  readonly #shared: Client | undefined;
  readonly #dials = new Set<Dial>();

  constructor(udsPath: string, { reusable }: { readonly reusable: boolean }) {
    this.#udsPath = udsPath;
    this.#shared = reusable ? this.#connect() : undefined;
  }

  #connect(): Client {
    // Without a channel of its own grpc-js would share sessions between clients of one address.
    return new Client(`unix:${this.#udsPath}`, credentials.createInsecure(), { "grpc.use_local_subchannel_pool": 1 });
  }

  async dial(address: string, options: { readonly signal?: AbortSignal } = {}): Promise<TunnelConnection> {
    const client = this.#shared ?? this.#connect();
    const dial = new Dial(client, { ownsSession: client !== this.#shared, violations: this.violations });
    this.#dials.add(dial);
    dial.onHungUp = () => this.#dials.delete(dial);
    return dial.start(address, options.signal);
  }

  async kill(): Promise<void> {
    for (const dial of [...this.#dials]) dial.hangUp();
    this.#shared?.close();
  }
}

/** One stream with one dial and its connection. */
class Dial implements ConnectionPort {
  readonly #client: Client;
  readonly #ownsSession: boolean;
  readonly #violations: string[];
  readonly #call: Call;
  readonly #random = randomDialId();
  readonly #answer = Promise.withResolvers<TunnelConnection>();
  #connection: TunnelConnection | undefined;
  #connectID = "";
  #state: "dialing" | "open" | "over" = "dialing";
  #hungUp = false;
  onHungUp: () => void = () => undefined;

  constructor(client: Client, options: { readonly ownsSession: boolean; readonly violations: string[] }) {
    this.#client = client;
    this.#ownsSession = options.ownsSession;
    this.#violations = options.violations;
    this.#call = client.makeBidiStreamRequest(METHOD.path, METHOD.requestSerialize, METHOD.responseDeserialize);
    this.#call.on("data", (packet: GrpcPacket) => this.#take(packet));
    // The status event follows.
    this.#call.on("error", () => undefined);
    this.#call.on("status", ({ code, details }) => {
      this.#answer.reject(new DialRefused(`the stream ended with status ${code} ${details}`));
      this.#connection?.over({ kind: "lost" });
    });
  }

  async start(address: string, signal?: AbortSignal): Promise<TunnelConnection> {
    this.#call.write({ dialRequest: { protocol: "tcp", address, random: this.#random } });
    const onAbort = (): void => {
      // The packet before the end, as in Go, where closing a session flushes it.
      this.#call.write({ type: "DIAL_CLS", closeDial: { random: this.#random } }, () => this.hangUp());
      this.#answer.reject(signal?.reason);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      return await this.#answer.promise;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  #take(packet: GrpcPacket): void {
    switch (packet.type) {
      case "DIAL_RSP":
        this.#answered(packet.dialResponse);
        break;
      case "DIAL_CLS":
        this.#answer.reject(new DialRefused("dial closed"));
        this.hangUp();
        break;
      case "DATA":
        this.#data(packet.data);
        break;
      case "CLOSE_RSP":
        this.#closed(packet.closeResponse);
        break;
      default:
        this.#violations.push(`a client was sent ${packet.type}`);
    }
  }

  #answered(response: GrpcPacket["dialResponse"]): void {
    const { error = "", connectID = "0", random } = response ?? {};
    if (this.#state !== "dialing") this.#violations.push("a dial was answered a second time");
    if (random !== this.#random) this.#violations.push(`a dial ${this.#random} was answered with random ${random}`);
    if (error !== "") {
      this.#answer.reject(new DialRefused(error));
      this.hangUp();
      return;
    }
    if (connectID === "0") this.#violations.push("a dial succeeded with connectID 0");
    this.#state = "open";
    this.#connectID = connectID;
    this.#connection = new TunnelConnection(this);
    this.#answer.resolve(this.#connection);
  }

  #data(data: GrpcPacket["data"]): void {
    if (this.#state !== "open") this.#violations.push(`DATA came while the stream was ${this.#state}`);
    if (data?.connectID !== this.#connectID) this.#violations.push(`DATA came for connection ${data?.connectID}`);
    // A Go client reads it as the end of the file.
    if (data === undefined || data.data.length === 0) this.#violations.push("an empty DATA came to a client");
    else this.#connection?.received(data.data);
  }

  #closed(response: GrpcPacket["closeResponse"]): void {
    if (this.#state !== "open") this.#violations.push(`CLOSE_RSP came while the stream was ${this.#state}`);
    if (response?.connectID !== this.#connectID) this.#violations.push(`CLOSE_RSP came for ${response?.connectID}`);
    this.#state = "over";
    this.#connection?.over({ kind: "closed", error: response?.error ?? "" });
  }

  sendData(bytes: Buffer, sent: (error?: Error | null) => void): void {
    this.#call.write({ type: "DATA", data: { connectID: this.#connectID, data: bytes } }, sent);
  }

  sendClose(): void {
    this.#call.write({ type: "CLOSE_REQ", closeRequest: { connectID: this.#connectID } });
  }

  sendDialClose(): void {
    this.#call.write({ type: "DIAL_CLS", closeDial: { random: this.#random } });
  }

  pause(): void {
    this.#call.pause();
  }

  resume(): void {
    this.#call.resume();
  }

  hangUp(): void {
    if (this.#hungUp) return;
    this.#hungUp = true;
    this.#call.cancel();
    if (this.#ownsSession) this.#client.close();
    this.onHungUp();
  }
}
