/**
 * Many short tunnels that end in each of the ways in which tunnels end, every byte counted.
 *
 * Owns: the server that the tunnels lead to, and the clients. Does not know: the proxy between them.
 */
import { createServer, type Server, type Socket } from "node:net";
import { resetSocket } from "#base/socket-reset";

/** The way a tunnel ends: the client's FIN, the server's with data in flight, the client's RST. */
export const ENDINGS = ["client-fin", "upstream-fin", "reset"] as const;
export type Ending = (typeof ENDINGS)[number];

const LETTERS = { "client-fin": "F", "upstream-fin": "U", reset: "R" } as const;
/** More than a socket's first window, so that data is in flight when the FIN is sent. */
const REPLY_BYTES = 96 * 1024;
const REQUEST_BYTES = 48 * 1024;
const GREETING = "hello";
/** The time limit of one tunnel, in milliseconds. */
const TUNNEL_MS = 20_000;

/** Serves the churn; counts the connections that were reset. */
export class ChurnServer {
  readonly server: Server;
  resets = 0;
  open = 0;

  constructor() {
    this.server = createServer({ allowHalfOpen: true }, (socket) => this.#serve(socket));
  }

  #serve(socket: Socket): void {
    let letter = "";
    let bytes = 0;
    this.open += 1;
    socket.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "ECONNRESET") this.resets += 1;
    });
    socket.once("close", () => {
      this.open -= 1;
    });
    socket.on("data", (chunk: Buffer) => {
      bytes += chunk.length;
      if (letter !== "") return;
      letter = chunk.toString("latin1", 0, 1);
      if (letter === LETTERS["upstream-fin"]) socket.end(Buffer.alloc(REPLY_BYTES, "u"));
      if (letter === LETTERS.reset) socket.write(GREETING);
    });
    // Half closed: the reply comes after the other side's FIN.
    socket.on("end", () => socket.end(letter === LETTERS["client-fin"] ? `got ${bytes}` : ""));
  }
}

/** Runs one tunnel, requested on a connection to the proxy, from its start to its end; rejects if a byte or an end is missing. */
export async function churnOnce(socket: Socket, target: string, ending: Ending): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const timer = setTimeout(() => reject(new Error(`${ending}: not over after ${TUNNEL_MS} ms`)), TUNNEL_MS);
  let head = "";
  let isOpen = false;
  const body: Buffer[] = [];
  const length = (): number => body.reduce((sum, { length: one }) => sum + one, 0);
  const opened = (rest: Buffer): void => {
    isOpen = true;
    if (rest.length > 0) body.push(rest);
    if (ending === "client-fin") socket.end(Buffer.alloc(REQUEST_BYTES, LETTERS[ending]));
    else socket.write(LETTERS[ending]);
  };
  socket.on("data", (chunk: Buffer) => {
    if (isOpen) body.push(chunk);
    else {
      head += chunk.toString("latin1");
      const at = head.indexOf("\r\n\r\n");
      if (at < 0) return;
      if (!head.startsWith("HTTP/1.1 200 ")) return reject(new Error(`${ending}: the proxy said ${head}`));
      opened(Buffer.from(head.slice(at + 4), "latin1"));
    }
    if (ending === "reset" && length() >= GREETING.length) {
      resetSocket(socket);
      resolve();
    }
  });
  socket.once("error", (error) => reject(new Error(`${ending}: ${error.message} after ${length()} bytes`)));
  socket.once("end", () => {
    const text = Buffer.concat(body).toString("latin1");
    const wanted = ending === "client-fin" ? `got ${REQUEST_BYTES}` : "u".repeat(REPLY_BYTES);
    if (text !== wanted) reject(new Error(`${ending}: ${text.length} of ${wanted.length} bytes came`));
    socket.end();
    resolve();
  });
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`);
  try {
    await promise;
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}
