import { createSocket, type Socket } from "node:dgram";
import { IpAddress, type IpFamily } from "#base/ip";
import { encodeAnswer, readQuestion } from "#lab/internet";

const TYPE_A = 1;
const TYPE_AAAA = 28;
const NXDOMAIN = 3;

/** The addresses of each name; a name that is missing gives NXDOMAIN. */
export type Zone = Readonly<Record<string, readonly string[]>>;

/** A DNS server over UDP (RFC 1035): one question, A and AAAA, from a zone that a test may change at any time. */
export class TestDns implements AsyncDisposable {
  zone: Zone;
  /** Seconds. */
  ttl = 60;
  /** If true, it receives questions and does not answer. */
  mute = false;
  /** The requested names, in order, as `A registry.example`. */
  readonly questions: string[] = [];
  readonly #sockets: Socket[];

  /** Serves on UDP sockets that are already bound; the caller disposes it. */
  constructor(sockets: readonly { readonly fd: number; readonly family: IpFamily }[], zone: Zone) {
    this.zone = zone;
    this.#sockets = sockets.map(({ fd, family }) => this.#serve(fd, family));
  }

  #serve(fd: number, family: IpFamily): Socket {
    const socket = createSocket({ type: family === 4 ? "udp4" : "udp6" });
    socket.bind({ fd });
    socket.on("message", (query, from) => {
      const answer = this.#answer(query);
      if (answer !== undefined) socket.send(answer, from.port, from.address);
    });
    return socket;
  }

  #answer(query: Buffer): Buffer | undefined {
    const question = readQuestion(query);
    const { name, type } = question;
    this.questions.push(`${type === TYPE_AAAA ? "AAAA" : type === TYPE_A ? "A" : type} ${name}`);
    if (this.mute) return undefined;
    const texts = this.zone[name];
    const addresses = (texts ?? []).map((text) => IpAddress.parse(text));
    const code = texts === undefined ? NXDOMAIN : 0;
    return encodeAnswer(query, question, { addresses, code, ttlSeconds: this.ttl });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) await new Promise<void>((resolve) => void socket.close(resolve));
  }
}
