import { connect, type Socket } from "node:net";
import { type AbortOptions, Deferred, unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { OvsdbError } from "./errors.ts";
import { JsonStream } from "./json-stream.ts";
import type { OvsdbOperation, OvsdbRow } from "./values.ts";

/** The result of one operation: rows of a select, a count of a change, the uuid of an insertion. */
export interface OperationResult {
  readonly rows: readonly OvsdbRow[];
  readonly count: number;
}

/** The maximum number of calls without an answer on one connection. */
const MAX_PENDING = 256;

/** A transaction was refused: no operation had an effect. */
export interface Refusal {
  /** The index of the operation; `undefined`: the transaction as a whole. */
  readonly operation: number | undefined;
  /** The server's word, such as `timed out` for a `wait` that does not hold, `constraint violation`. */
  readonly error: string;
  readonly details: string;
}

/**
 * One connection to an OVSDB server (RFC 7047). It answers `echo`. The opener disposes it. After a failure of the connection every call
 * rejects.
 */
export class OvsdbConnection implements AsyncDisposable {
  readonly #socket: Socket;
  readonly #clock: Clock;
  readonly #stream = new JsonStream();
  readonly #pending = new Map<number, Deferred<unknown>>();
  readonly #ended = new Deferred<OvsdbError>();
  #onUpdate: (() => void) | undefined;
  #lastId = 0;
  #failure: OvsdbError | undefined;

  private constructor(socket: Socket, clock: Clock) {
    this.#socket = socket;
    this.#clock = clock;
    socket.on("data", (chunk: Buffer) => this.#receive(chunk));
    socket.on("error", (cause) =>
      this.#fail(new OvsdbError("closed", `the database's connection: ${cause.message}`, { cause })),
    );
    socket.once("close", () => this.#fail(new OvsdbError("closed", "the database has closed the connection")));
  }

  /** Connects to a UNIX socket. Rejects with {@link OvsdbError} `unreachable`, or the signal's reason. */
  static async open(
    deps: { readonly clock: Clock },
    path: string,
    options: AbortOptions = {},
  ): Promise<OvsdbConnection> {
    options.signal?.throwIfAborted();
    const socket = connect(path);
    const connected = new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", (cause) =>
        reject(
          new OvsdbError("unreachable", `cannot reach the database of Open vSwitch at ${path}: ${cause.message}`, {
            cause,
          }),
        ),
      );
    });
    try {
      await unlessAborted(connected, options);
    } catch (error) {
      socket.destroy();
      throw error;
    }
    return new OvsdbConnection(socket, deps.clock);
  }

  /** Resolves with the failure that has ended the connection. */
  get ended(): Promise<OvsdbError> {
    return this.#ended.promise;
  }

  /**
   * Runs operations of the database `Open_vSwitch` as one transaction: all or none. Resolves to their results, or to the refusal. Rejects with
   * {@link OvsdbError} `closed`, `timeout` or `malformed`.
   */
  async transact(
    operations: readonly OvsdbOperation[],
    options: AbortOptions & { readonly timeoutMs: number },
  ): Promise<readonly OperationResult[] | Refusal> {
    const answer = await this.#call("transact", ["Open_vSwitch", ...operations], options);
    return resultsOf(answer, operations.length);
  }

  /** Calls `onUpdate` after each change of these columns of tables. Only one monitor for a connection. Rejects as {@link transact}. */
  async monitor(
    columns: Readonly<Record<string, readonly string[]>>,
    onUpdate: () => void,
    options: AbortOptions & { readonly timeoutMs: number },
  ): Promise<void> {
    this.#onUpdate = onUpdate;
    const requests = Object.fromEntries(Object.entries(columns).map(([table, names]) => [table, { columns: names }]));
    await this.#call("monitor", ["Open_vSwitch", "isthmus", requests], options);
  }

  async #call(
    method: string,
    params: readonly unknown[],
    { signal, timeoutMs }: AbortOptions & { readonly timeoutMs: number },
  ): Promise<unknown> {
    signal?.throwIfAborted();
    if (this.#failure !== undefined) throw this.#failure;
    if (this.#pending.size >= MAX_PENDING)
      throw new OvsdbError("timeout", `${MAX_PENDING} calls wait for the database already`);
    this.#lastId += 1;
    const id = this.#lastId;
    const answer = new Deferred<unknown>();
    this.#pending.set(id, answer);
    const cancel = this.#clock.after(timeoutMs, () =>
      answer.reject(
        new OvsdbError("timeout", `the database of Open vSwitch has not answered ${method} for ${timeoutMs} ms`),
      ),
    );
    this.#send({ id, method, params });
    try {
      return await unlessAborted(answer.promise, { signal });
    } finally {
      cancel();
      this.#pending.delete(id);
    }
  }

  #send(message: object): void {
    this.#socket.write(JSON.stringify(message));
  }

  #receive(chunk: Buffer): void {
    try {
      for (const message of this.#stream.push(chunk)) this.#take(message as Readonly<Record<string, unknown>>);
    } catch (error) {
      if (!(error instanceof OvsdbError)) throw error;
      this.#fail(error);
      this.#socket.destroy();
    }
  }

  #take({ id, method, params, result, error }: Readonly<Record<string, unknown>>): void {
    if (method === "echo") this.#send({ id, result: params ?? [], error: null });
    else if (method === "update") this.#onUpdate?.();
    else if (method === undefined && typeof id === "number") {
      const pending = this.#pending.get(id);
      // A call that was given up has no entry any more.
      if (error === null || error === undefined) pending?.resolve(result);
      else
        pending?.reject(
          new OvsdbError("refused", `the database of Open vSwitch: ${JSON.stringify(error).slice(0, 500)}`),
        );
    }
  }

  #fail(failure: OvsdbError): void {
    if (this.#failure !== undefined) return;
    this.#failure = failure;
    for (const pending of this.#pending.values()) pending.reject(failure);
    this.#ended.resolve(failure);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#fail(new OvsdbError("closed", "the connection to the database was closed"));
    this.#socket.destroy();
  }
}

/** True if a transaction had no effect. */
export function isRefusal(results: readonly OperationResult[] | Refusal): results is Refusal {
  return "error" in results;
}

/** Reads the answer to a transaction: an error stands at the place of the operation, or behind all of them (RFC 7047 section 4.1.3). */
export function resultsOf(answer: unknown, operations: number): readonly OperationResult[] | Refusal {
  if (!Array.isArray(answer)) throw new OvsdbError("malformed", "the database has answered a transaction with no list");
  const results: OperationResult[] = [];
  for (const [at, one] of (answer as readonly unknown[]).entries()) {
    const { error, details, rows, count } = (one ?? {}) as Readonly<Record<string, unknown>>;
    if (typeof error === "string") {
      return {
        operation: at < operations ? at : undefined,
        error,
        details: typeof details === "string" ? details : "",
      };
    }
    if (rows !== undefined && !Array.isArray(rows))
      throw new OvsdbError("malformed", "the rows of an answer are no list");
    results.push({
      rows: ((rows as unknown[] | undefined) ?? []).map(rowOf),
      count: typeof count === "number" ? count : 0,
    });
  }
  if (results.length < operations)
    throw new OvsdbError("malformed", `${results.length} results for ${operations} operations`);
  return results;
}

function rowOf(row: unknown): OvsdbRow {
  if (typeof row === "object" && row !== null && !Array.isArray(row)) return row as OvsdbRow;
  throw new OvsdbError("malformed", "a row of an answer is no object");
}
