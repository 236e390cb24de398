import { renameSync } from "node:fs";
import { untilAborted } from "#base/async";
import type { Clock } from "#base/clock";
import type { ListenAddress } from "#base/config";
import type { Logger } from "#base/log";
import { keepListening } from "#base/reconcile";
import { claimSocketPath } from "#base/unix-socket";
import { KernelError } from "#kernel/errors";
import { duplicate } from "#kernel/ffi";
import { epollStreamsFault, SharedUnixSocket } from "#kernel/reactor";
import { BACKLOG, claimAddress, ListenerError, UDS_UMASK } from "./listener.ts";
import type { AgentListen, FrontendListen } from "./listeners.ts";

/** The place where workers accept frontends: disposing it lets no further frontend come. */
export interface SharedFrontends extends Disposable {
  /** The descriptors that workers must inherit. */
  readonly descriptors: readonly number[];
  /**
   * Listens again, within a second, when the socket's file is removed or replaced, until the signal aborts. `pass` gives a new descriptor, which it owns, to all workers;
   * no client reaches that before.
   */
  keep(
    pass: (fd: number) => Promise<void>,
    options: { readonly signal: AbortSignal; readonly log: Logger; readonly clock: Clock },
  ): Promise<void>;
  /** The reason why frontends cannot reach the workers; `undefined` if they can. */
  fault(): string | undefined;
}

/**
 * Opens what the workers of a server listen on together: the UNIX socket of frontends, and nothing for TCP addresses, which must be free. Rejects
 * with `ListenerError`, `SocketPathError`.
 */
export async function openShared(
  frontend: FrontendListen & { readonly kind: "uds" | "tcp" },
  agent: AgentListen,
): Promise<SharedFrontends> {
  await claimAddress(agent.address);
  if (frontend.kind === "tcp") return claimed(frontend.address);
  const { path, deleteExisting } = frontend;
  const fault = epollStreamsFault();
  if (fault !== undefined) {
    throw new ListenerError("cannot-listen", `workers cannot share ${path}: ${fault}; set --workers=1`);
  }
  await claimSocketPath(path, { deleteExisting });
  return new SharedSocket({ path, deleteExisting });
}

/** The interval of looks at the socket's file, in milliseconds. */
const CHECK_MS = 500;

/** The UNIX socket of frontends, which all workers accept from. */
class SharedSocket implements SharedFrontends {
  readonly #place: { readonly path: string; readonly deleteExisting: boolean };
  #socket: SharedUnixSocket;
  #why = "";

  /** Throws `ListenerError`. */
  constructor(place: { readonly path: string; readonly deleteExisting: boolean }) {
    this.#place = place;
    this.#socket = listenAt(place.path);
  }

  get descriptors(): readonly number[] {
    return [this.#socket.fd];
  }

  fault(): string | undefined {
    if (this.#socket.isReachable) return undefined;
    const lost = `the file of ${this.#place.path} was removed or replaced`;
    return this.#why === "" ? `${lost}; listening again` : `${lost}, and listening again failed: ${this.#why}`;
  }

  async keep(
    pass: (fd: number) => Promise<void>,
    options: { readonly signal: AbortSignal; readonly log: Logger; readonly clock: Clock },
  ): Promise<void> {
    const { signal, log, clock } = options;
    await keepListening({
      ...{ signal, clock, everyMs: CHECK_MS },
      isListening: () => this.#socket.isReachable,
      listen: async () => {
        await this.#listenAgain(pass);
        this.#why = "";
        log.warn("listening again: the file of the socket was removed or replaced", { socket: this.#place.path });
      },
      onFailure: (error) => {
        this.#why = error.message;
      },
    });
  }

  /** A new socket gets the path when all workers accept from it. */
  async #listenAgain(pass: (fd: number) => Promise<void>): Promise<void> {
    const { path } = this.#place;
    await claimSocketPath(path, this.#place);
    const waiting = `${path}.${process.pid}`;
    await claimSocketPath(waiting, { deleteExisting: true });
    const next = listenAt(waiting);
    try {
      await pass(duplicate(next.fd));
      renameSync(waiting, path);
      next.moved(path);
    } catch (error) {
      next[Symbol.dispose]();
      if (!isErrno(error)) throw error;
      throw new ListenerError("cannot-listen", `cannot listen on ${path}: ${error.message}`, { cause: error });
    }
    this.#socket[Symbol.dispose]();
    this.#socket = next;
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }
}

const isErrno = (error: unknown): error is Error =>
  error instanceof Error && ("syscall" in error || error instanceof KernelError);

/** Throws `ListenerError`. */
function listenAt(path: string): SharedUnixSocket {
  try {
    return SharedUnixSocket.listen(path, { umask: UDS_UMASK, backlog: BACKLOG });
  } catch (error) {
    if (!(error instanceof KernelError)) throw error;
    throw new ListenerError("cannot-listen", `cannot listen on ${path}: ${error.message}`, { cause: error });
  }
}

async function claimed(address: ListenAddress): Promise<SharedFrontends> {
  await claimAddress(address);
  return {
    descriptors: [],
    // The kernel's address cannot be lost.
    keep: (_pass, { signal }) => untilAborted(signal),
    fault: () => undefined,
    [Symbol.dispose]: () => undefined,
  };
}
