import { createSocket, type Socket } from "node:dgram";
import { IpAddress, type IpFamily } from "#base/ip";

const TYPE_A = 1;
const TYPE_AAAA = 28;

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
    if (question === undefined) return undefined;
    const { name, type, end } = question;
    this.questions.push(`${type === TYPE_AAAA ? "AAAA" : type === TYPE_A ? "A" : type} ${name}`);
    if (this.mute) return undefined;
    const texts = this.zone[name];
    const family = type === TYPE_AAAA ? 6 : 4;
    const found = (texts ?? []).map((text) => IpAddress.parse(text)).filter((one) => one.family === family);
    const records = found.map((address) => this.#record(type, address));
    const header = Buffer.alloc(12);
    query.copy(header, 0, 0, 2);
    // Response, recursion desired and available; NXDOMAIN is 3.
    header.writeUInt16BE(0x8180 | (texts === undefined ? 3 : 0), 2);
    header.writeUInt16BE(1, 4);
    header.writeUInt16BE(records.length, 6);
    return Buffer.concat([header, query.subarray(12, end), ...records]);
  }

  #record(type: number, address: IpAddress): Buffer {
    const fixed = Buffer.alloc(12);
    fixed.writeUInt16BE(0xc00c, 0); // the name of the question
    fixed.writeUInt16BE(type, 2);
    fixed.writeUInt16BE(1, 4);
    fixed.writeUInt32BE(this.ttl, 6);
    fixed.writeUInt16BE(address.bits / 8, 10);
    return Buffer.concat([fixed, address.toBytes()]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) await new Promise<void>((resolve) => void socket.close(resolve));
  }
}

function readQuestion(
  query: Buffer,
): { readonly name: string; readonly type: number; readonly end: number } | undefined {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  if (query.length < at + 5) return undefined;
  return { name: labels.join(".").toLowerCase(), type: query.readUInt16BE(at + 1), end: at + 5 };
}
