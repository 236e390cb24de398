import { type ChildProcess, spawn } from "node:child_process";
import { createServer, type Server } from "node:net";
import { Deferred } from "#base/async";
import { WorkerError } from "./errors.ts";
import { type FromWorker, type Order, type ToWorker, WORKER_VARIABLE } from "./messages.ts";
import { socketOf } from "./socket-number.ts";

export interface WorkerGroupInit {
  /** The command line of each worker; its program calls `thisWorker`. */
  readonly command: readonly string[];
  /** The number of workers, from 1 on. */
  readonly count: number;
  /** Environment variables of each worker, besides those of this process. */
  readonly env?: Readonly<Record<string, string>>;
  /** Descriptors that each worker inherits. The caller keeps its own. */
  readonly descriptors?: readonly number[];
}

/** The way in which a worker has ended: with a code, by a signal, or because its process could not be made. */
interface Outcome {
  readonly code: number | null;
  readonly signal?: NodeJS.Signals | null;
  readonly error?: Error;
}

/** One worker, as its leader sees it. */
class Member {
  readonly index: number;
  readonly started = new Deferred<void>();
  /** Resolves when the process is gone. */
  readonly ended: Promise<Outcome>;
  readonly #child: ChildProcess;
  /** Questions without an answer, by their names. */
  readonly #asked = new Map<string, Deferred<unknown>>();
  readonly #onServing: () => void;
  #canServe = false;
  #canOthersServe = false;
  /** True if the last message to the worker said that there are others. */
  #knowsOthers = false;
  /** True until the worker's channel has taken what it was told last. */
  #isTelling = false;

  constructor(index: number, { command, count, env = {}, descriptors = [] }: WorkerGroupInit, onServing: () => void) {
    this.index = index;
    this.#onServing = onServing;
    const [file = "", ...args] = command;
    this.#child = spawn(file, args, {
      // Its own session: a terminal sends its signals to the leader alone, which gives the order.
      detached: true,
      stdio: ["ignore", "inherit", "inherit", "ipc", ...descriptors],
      env: { ...process.env, ...env, [WORKER_VARIABLE]: `${index}/${count}` },
    });
    const gone = new Deferred<Outcome>();
    this.#child.once("exit", (code, signal) => gone.resolve({ code, signal }));
    this.#child.once("error", (error) => gone.resolve({ code: 1, error }));
    this.#child.on("message", (message: FromWorker) => this.#onMessage(message));
    this.ended = gone.promise;
  }

  /** `onSent` is called when the worker's channel has taken the message. */
  send(message: ToWorker, onSent: () => void = () => undefined): void {
    // A worker that is gone gets nothing any more, and one whose process could not be made has no channel; `ended` reports both.
    this.#child.send?.(message, (error) => {
      if (error === null) onSent();
    });
  }

  /** Resolves when the worker's channel has taken the socket, or is gone: `ended` reports that. */
  pass(server: Server, socket: string): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const message: ToWorker = { kind: "listener", socket };
    if (this.#child.connected) this.#child.send(message, server, () => resolve());
    else resolve();
    return promise;
  }

  /** At most one question of a name is under way, so that a worker that is stuck makes no queue grow. */
  ask(question: string): Promise<unknown> {
    const before = this.#asked.get(question);
    if (before !== undefined) return before.promise;
    const answer = new Deferred<unknown>();
    this.#asked.set(question, answer);
    this.send({ kind: "question", question });
    return answer.promise;
  }

  get canServe(): boolean {
    return this.#canServe;
  }

  /**
   * Tells the worker whether any other one can serve clients, if that has changed. At most one such message is under way: agents that come and
   * go make no queue grow for a worker that is stuck.
   */
  noteOthers(canServe: boolean): void {
    this.#canOthersServe = canServe;
    if (canServe === this.#knowsOthers || this.#isTelling) return;
    this.#knowsOthers = canServe;
    this.#isTelling = true;
    this.send({ kind: "others", canServe }, () => {
      this.#isTelling = false;
      this.noteOthers(this.#canOthersServe);
    });
  }

  kill(): void {
    this.#child.kill("SIGKILL");
  }

  #onMessage(message: FromWorker): void {
    if (message.kind === "started") {
      this.started.resolve();
      return;
    }
    if (message.kind === "serving") {
      this.#canServe = message.canServe;
      this.#onServing();
      return;
    }
    this.#asked.get(message.question)?.resolve(message.answer);
    this.#asked.delete(message.question);
  }
}

/** The workers of a leader. They end with its process, however it ends. */
export class WorkerGroup implements AsyncDisposable {
  readonly #members: Member[] = [];
  readonly #kill = (): void => {
    for (const member of this.#members) member.kill();
  };

  private constructor() {
    process.once("exit", this.#kill);
  }

  /**
   * Starts the first worker, and when it has started the others: what is wrong with all is reported once. Resolves at once when the signal
   * aborts: no further worker is started then, and those that are there obey orders. Rejects with {@link WorkerError} if one ends before it has
   * started; no worker is left then.
   */
  static async start(init: WorkerGroupInit, { signal }: { readonly signal: AbortSignal }): Promise<WorkerGroup> {
    const group = new WorkerGroup();
    const aborted = new Deferred<void>();
    const onAbort = (): void => aborted.resolve();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      if (signal.aborted) return group;
      const first = group.#add(1, init);
      await Promise.race([first.started.promise, group.#failure(first), aborted.promise]);
      if (signal.aborted) return group;
      const others = Array.from({ length: init.count - 1 }, (_, at) => group.#add(at + 2, init));
      const started = Promise.all(others.map((member) => member.started.promise));
      await Promise.race([started, ...group.#members.map((member) => group.#failure(member)), aborted.promise]);
      return group;
    } catch (error) {
      await group[Symbol.asyncDispose]();
      throw error;
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  #add(index: number, init: WorkerGroupInit): Member {
    const member = new Member(index, init, () => this.#spread());
    this.#members.push(member);
    this.#spread();
    return member;
  }

  #spread(): void {
    const serving = this.#members.filter(({ canServe }) => canServe).length;
    for (const member of this.#members) member.noteOthers(serving > (member.canServe ? 1 : 0));
  }

  /** Gives all workers an order. */
  tell(order: Order): void {
    for (const member of this.#members) member.send({ kind: "order", order });
  }

  /**
   * Passes a listening socket of the kernel to all workers, and owns its descriptor from now on. Resolves when their channels have taken it. No client must
   * reach the socket before that: for a moment this process listens on it too.
   */
  async pass(fd: number): Promise<void> {
    const socket = socketOf(fd);
    const server = createServer((client) => client.destroy());
    // It listens already, and nothing is waited for.
    server.listen({ fd });
    try {
      await Promise.all(this.#members.map((member) => member.pass(server, socket)));
    } finally {
      server.close();
    }
  }

  /** Asks all workers. The answers are in the order of the workers; `undefined` is that of one that has not answered in time. */
  ask(question: string, { timeoutMs }: { readonly timeoutMs: number }): Promise<readonly unknown[]> {
    return Promise.all(
      this.#members.map(async (member) => {
        const { promise, resolve } = Promise.withResolvers<undefined>();
        const timer = setTimeout(() => resolve(undefined), timeoutMs);
        try {
          return await Promise.race([member.ask(question), promise]);
        } finally {
          clearTimeout(timer);
        }
      }),
    );
  }

  /** Resolves when the signal aborts; rejects with {@link WorkerError} if a worker ends before that. */
  async watch({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    if (signal.aborted) return;
    const aborted = new Deferred<void>();
    signal.addEventListener("abort", () => aborted.resolve(), { once: true });
    await Promise.race([aborted.promise, ...this.#members.map((member) => this.#failure(member))]);
  }

  /** Resolves when all workers have ended, with the highest of their exit codes; a worker that a signal has ended counts as 1. */
  async ended(): Promise<number> {
    const outcomes = await Promise.all(this.#members.map(({ ended }) => ended));
    return Math.max(0, ...outcomes.map(({ code }) => code ?? 1));
  }

  /** Ends the workers that are left at once. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#kill();
    await this.ended();
    process.off("exit", this.#kill);
  }

  async #failure({ index, ended }: Member): Promise<never> {
    const { code, signal = null, error } = await ended;
    if (error !== undefined) {
      throw new WorkerError("ended", `worker ${index} cannot be started: ${error.message}`, { cause: error });
    }
    const how = signal === null ? `with exit code ${code}` : `by ${signal}`;
    throw new WorkerError("ended", `worker ${index} has ended ${how}`);
  }
}
