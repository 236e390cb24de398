import { createServer, type Socket } from "node:net";
import type { Clock } from "#base/clock";
import { claimSocketPath, listenOnPath } from "#base/unix-socket";
import { CniCode, CniError, cniErrorJson, HIGHEST_VERSION } from "#wire/cni";
import {
  type Answer,
  callBytes,
  encodeAnswer,
  type HandedCall,
  HandoverError,
  NOT_MINE,
  parseCall,
} from "#wire/cni-handover";

/**
 * The maximum number of connections. Beyond it the oldest one whose call has not come gives its place up; where all have calls, launchers of further calls run
 * the standalone executable.
 */
export const MAX_CALLS = 1024;
/** The time of a call from its connection to its answer, in milliseconds. */
const DEADLINE_MS = 60_000;
/** The time that connections have to close when the server ends, in milliseconds. */
const CLOSE_GRACE_MS = 1000;

export interface HandoverOptions {
  readonly socketPath: string;
  /** Runs a call. Returns {@link NOT_MINE} for a call that is meant for another coild; such a call was not begun. A rejection is a bug. */
  readonly run: (call: HandedCall, options: { readonly signal: AbortSignal }) => Promise<Answer | typeof NOT_MINE>;
  readonly onBug: (error: unknown) => void;
  readonly clock: Clock;
}

/**
 * Serves calls that launchers hand over, on a UNIX socket of mode 0600. A call is aborted when its launcher closes the connection, and
 * after 60 s. A caller that is not a launcher is disconnected. Throws `SocketPathError` as `serveGrpc` does. Disposing waits for running
 * calls.
 */
export async function serveHandover(options: HandoverOptions): Promise<AsyncDisposable> {
  const { socketPath } = options;
  await claimSocketPath(socketPath, { deleteExisting: true });
  const connections = new Set<Connection>();
  const server = createServer((socket) => {
    if (connections.size >= MAX_CALLS && !makeRoom(connections)) {
      socket.on("error", () => undefined);
      turnAway(socket, options.clock);
      return;
    }
    const connection = new Connection(socket, options, () => connections.delete(connection));
    connections.add(connection);
  });
  const listening = await listenOnPath(server, socketPath, { umask: 0o177 });
  return {
    async [Symbol.asyncDispose]() {
      const closed = new Promise<void>((resolve) => listening.close(resolve));
      for (const connection of connections) connection.endIfIdle();
      await Promise.all(Array.from(connections, (connection) => connection.call));
      const cancel = options.clock.after(CLOSE_GRACE_MS, () => {
        for (const connection of connections) connection.close();
      });
      await closed;
      cancel();
    },
  };
}

/** Ends the oldest connection whose call has not come. Returns false if there is none. */
function makeRoom(connections: Set<Connection>): boolean {
  for (const connection of connections) {
    if (connection.call !== undefined) continue;
    connections.delete(connection);
    connection.endIfIdle();
    return true;
  }
  return false;
}

/** One call: its bytes, its run and its answer. */
class Connection {
  readonly #socket: Socket;
  readonly #options: HandoverOptions;
  readonly #controller = new AbortController();
  readonly #cancelDeadline: () => void;
  #chunks: Buffer[] = [];
  #size = 0;
  /** The size of the call, once its head is complete. */
  #wanted: number | undefined;
  #isAnswered = false;
  /** The run; `undefined` while the call is not complete. It does not reject. */
  call: Promise<void> | undefined;

  constructor(socket: Socket, options: HandoverOptions, onClose: () => void) {
    this.#socket = socket;
    this.#options = options;
    this.#cancelDeadline = options.clock.after(DEADLINE_MS, () => this.#late());
    socket.on("data", (chunk: Buffer) => this.#receive(chunk));
    // After any fault of the socket the launcher is gone: `close` follows.
    socket.on("error", () => undefined);
    socket.once("close", () => {
      onClose();
      this.#cancelDeadline();
      if (!this.#isAnswered) this.#controller.abort(new DOMException("the caller closed the connection", "AbortError"));
    });
  }

  /** Rejects a call that has not begun: its launcher then runs the standalone executable. */
  endIfIdle(): void {
    if (this.call !== undefined || this.#socket.destroyed) return;
    this.#socket.removeAllListeners("data");
    turnAway(this.#socket, this.#options.clock);
  }

  close(): void {
    this.#socket.destroy();
  }

  #late(): void {
    this.#controller.abort(new DOMException("the caller's deadline has passed", "TimeoutError"));
    this.endIfIdle();
  }

  #receive(chunk: Buffer): void {
    try {
      this.#take(chunk);
    } catch (error) {
      if (!(error instanceof HandoverError)) throw error;
      this.close();
    }
  }

  /** Throws {@link HandoverError}. */
  #take(chunk: Buffer): void {
    this.#size += chunk.length;
    // Nothing may follow a call: more bytes are the same fault as a call that is larger than its header says.
    if (this.call !== undefined) throw new HandoverError("malformed", "more bytes follow the end of a call");
    this.#chunks.push(chunk);
    if (this.#wanted === undefined) {
      const head = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
      this.#chunks = [head];
      this.#wanted = callBytes(head);
    }
    if (this.#wanted === undefined || this.#size < this.#wanted) return;
    const call = parseCall(this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks));
    this.#chunks = [];
    this.call = this.#answer(call);
  }

  async #answer(call: HandedCall): Promise<void> {
    try {
      const answer = await this.#options.run(call, { signal: this.#controller.signal });
      const bytes = encodeBounded(answer);
      this.#isAnswered = true;
      if (!this.#socket.destroyed) this.#socket.end(bytes);
    } catch (error) {
      this.close();
      this.#options.onBug(error);
    }
  }
}

/**
 * Tells a launcher that its call was not begun: it runs the standalone executable. The remaining bytes are read and dropped: otherwise the
 * kernel would reset the connection, and the answer would be lost. The connection is closed after a second at most.
 */
function turnAway(socket: Socket, clock: Clock): void {
  const cancel = clock.after(CLOSE_GRACE_MS, () => socket.destroy());
  socket.once("close", cancel);
  socket.resume();
  socket.end(encodeAnswer(NOT_MINE));
}

/** The bytes of an answer. An answer that is too large is replaced by an error with that reason. */
function encodeBounded(answer: Answer | typeof NOT_MINE): Uint8Array {
  try {
    return encodeAnswer(answer);
  } catch (error) {
    if (!(error instanceof HandoverError)) throw error;
    const fault = new CniError(
      CniCode.internal,
      `the answer of coild cannot be encoded for the launcher: ${error.message}`,
    );
    return encodeAnswer({ exitCode: 1, to: "stdout", text: `${cniErrorJson(fault, HIGHEST_VERSION)}\n` });
  }
}
