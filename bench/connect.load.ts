/**
 * The load of the CONNECT benchmark: a server that sends the requested number of bytes, and clients that receive them through a proxy or
 * directly. Each is a separate process.
 */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";

/** Bytes of a request: how many bytes are wanted, big-endian. */
const ASK_BYTES = 8;
const CHUNK = Buffer.alloc(256 * 1024, "x");
/** Bytes of one read: many if throughput is measured, few if only tunnels are opened. */
const READ_BYTES = { bytes: 256 * 1024, setUps: 512 } as const;
const NONE = Buffer.alloc(ASK_BYTES);

/** The way of a client to the server: through the proxy at a port of loopback, or directly. */
export interface Way {
  readonly proxyPort: number | undefined;
  readonly host: string;
  readonly port: number;
}

/** Serves on some ports until the process ends. */
export async function serve(host: string, ports: readonly number[]): Promise<void> {
  for (const port of ports) {
    const server = createServer({ noDelay: true }, (socket) => {
      let left = 0;
      const pump = (): void => {
        for (let goes = true; left > 0 && goes; ) {
          const part = CHUNK.subarray(0, Math.min(CHUNK.length, left));
          left -= part.length;
          goes = socket.write(part);
        }
      };
      socket.on("error", () => socket.destroy());
      socket.on("drain", pump);
      socket.on("data", (ask: Buffer) => {
        left = Number(ask.readBigUInt64BE(0));
        pump();
      });
    });
    server.listen({ host, port, backlog: 4096 });
    await once(server, "listening");
  }
}

/** Receives this number of bytes over this number of concurrent streams; resolves with the seconds since the first stream was open. */
export async function transfer(
  way: Way,
  options: { readonly bytes: number; readonly streams: number },
): Promise<number> {
  const each = Math.ceil(options.bytes / options.streams);
  const open = await Promise.all(Array.from({ length: options.streams }, () => Stream.open(way, READ_BYTES.bytes)));
  const from = performance.now();
  await Promise.all(open.map((stream) => stream.take(each)));
  const seconds = (performance.now() - from) / 1000;
  for (const stream of open) stream.end();
  return seconds;
}

/** Opens tunnels one after the other, with this concurrency and for this time; resolves with the milliseconds of each set-up. */
export async function setUps(way: Way, options: { readonly ms: number; readonly atOnce: number }): Promise<number[]> {
  const times: number[] = [];
  const until = performance.now() + options.ms;
  const work = async (): Promise<void> => {
    while (performance.now() < until) {
      const from = performance.now();
      const stream = await Stream.open(way, READ_BYTES.setUps);
      times.push(performance.now() - from);
      stream.end();
    }
  };
  await Promise.all(Array.from({ length: options.atOnce }, work));
  return times;
}

/** A connection that is read into one buffer, whose content is not used. */
class Stream {
  readonly #socket: Socket;
  #head = "";
  #wanted = Number.POSITIVE_INFINITY;
  #got = 0;
  #isOpen = false;
  #done = Promise.withResolvers<void>();

  private constructor(way: Way, readBytes: number) {
    const port = way.proxyPort ?? way.port;
    const host = way.proxyPort === undefined ? way.host : "127.0.0.1";
    const buffer = Buffer.allocUnsafe(readBytes);
    const onread = { buffer, callback: (bytes: number) => this.#read(buffer, bytes) };
    this.#socket = connect({ host, port, noDelay: true, onread });
    this.#socket.once("error", (error) => this.#done.reject(error));
    this.#socket.once("close", () => this.#done.reject(new Error(`closed after ${this.#got} bytes: ${this.#head}`)));
  }

  /** Resolves when the connection to the server is open. */
  static async open(way: Way, readBytes: number): Promise<Stream> {
    const stream = new Stream(way, readBytes);
    stream.#isOpen = way.proxyPort === undefined;
    stream.#socket.once("connect", () => {
      const target = `${way.host}:${way.port}`;
      if (stream.#isOpen) stream.#finish();
      else stream.#socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`);
    });
    await stream.#done.promise;
    return stream;
  }

  async take(bytes: number): Promise<void> {
    this.#done = Promise.withResolvers();
    this.#wanted = bytes;
    const ask = Buffer.from(NONE);
    ask.writeBigUInt64BE(BigInt(bytes));
    this.#socket.write(ask);
    await this.#done.promise;
  }

  end(): void {
    // Bytes that come after the requested end are ignored.
    this.#done.promise.catch(() => undefined);
    this.#socket.destroy();
  }

  #finish(): void {
    this.#done.resolve();
  }

  #read(buffer: Buffer, bytes: number): boolean {
    if (this.#isOpen) {
      this.#got += bytes;
      if (this.#got >= this.#wanted) this.#finish();
      return true;
    }
    this.#head += buffer.toString("latin1", 0, bytes);
    if (!this.#head.includes("\r\n\r\n")) return true;
    this.#isOpen = this.#head.startsWith("HTTP/1.0 200") || this.#head.startsWith("HTTP/1.1 200");
    if (this.#isOpen) this.#finish();
    else this.#done.reject(new Error(`the proxy answered ${this.#head}`));
    return true;
  }
}
