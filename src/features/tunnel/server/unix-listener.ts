import type { Clock } from "#base/clock";
import { LinkedSet } from "#base/collections";
import { describeError } from "#base/errors";
import { Health, type HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { RateLimitedLog } from "#base/rate-limit";
import { repeat } from "#base/reconcile";
import { claimSocketPath, fileIdentity, type KeptSocket, keepSocket } from "#base/unix-socket";
import { KernelError } from "#kernel/errors";
import { duplicate } from "#kernel/ffi";
import { UnixListener as KernelListener, type UnixListenerEvents, UnixStream } from "#kernel/reactor";
import { BACKLOG, type Listener, ListenerError, UDS_UMASK } from "./listener.ts";
import type { Succession } from "./succession.ts";

/** The interval at which a server looks whether it may take the path of the one before it, in milliseconds. */
const PROCEED_MS = 200;

export interface UnixListenerDeps {
  readonly log: Logger;
  readonly clock: Clock;
  /** Receives an error after which no client is accepted any more. It should end the program, which is of no use then. */
  readonly onBug: (error: unknown) => void;
  /** Called when a client cannot be accepted. If it pauses the listener, clients are left to other workers, and not refused. */
  readonly onShortage?: () => void;
  /**
   * Given in a worker: registers `take`. Whenever the leader listens anew, `take` is called with a descriptor of the new listening socket, which replaces the one of
   * {@link UnixListener.share}. The descriptor is closed after the call, so `take` duplicates it.
   */
  readonly onListener?: ((take: (fd: number) => void) => void) | undefined;
  /** The state of the socket's file. Default: it is only logged. */
  readonly health?: HealthPart;
  /** Given: if another process serves the path, the listener waits beside it for its turn. Default: that is an error. */
  readonly succession?: Succession | undefined;
}

interface UnixPlace {
  readonly path: string;
  readonly deleteExisting: boolean;
}

/** A UNIX socket on kernel/reactor: there is one connection for each proxied connection of an API server. */
export class UnixListener implements Listener {
  readonly #streams = new LinkedSet<UnixStream>();
  readonly #events: UnixListenerEvents;
  #listener: KernelListener | undefined;
  /** Listens again when the socket's file is lost. */
  #kept: KeptSocket | undefined;
  /** Waits for the path of an earlier server, and then keeps it. */
  #turn: Promise<void> | undefined;
  readonly #stop = new AbortController();
  #isPaused = false;
  /** Bytes of streams that are closed. */
  #received = 0;
  #sent = 0;

  private constructor(name: string, onStream: (stream: UnixStream) => void, deps: UnixListenerDeps) {
    const faults = new RateLimitedLog(deps);
    this.#events = {
      onClient: (fd) => onStream(this.#adopt(fd)),
      // Clients are refused or wait, and the listener continues.
      onFault: (error) => {
        faults.warn("cannot accept a connection", { reason: describeError(error) });
        deps.onShortage?.();
      },
      onError: (error) => {
        const text = `${name} accepts no connections any more: ${error.message}`;
        deps.onBug(new ListenerError("cannot-listen", text, { cause: error }));
      },
    };
  }

  /** Starts listening. `onStream` gets each connection, paused. Rejects with {@link ListenerError} or `SocketPathError`. */
  static async open(
    place: UnixPlace,
    onStream: (stream: UnixStream) => void,
    deps: UnixListenerDeps,
  ): Promise<Listener> {
    const { succession, onBug } = deps;
    const opened = new UnixListener(place.path, onStream, deps);
    if (succession !== undefined && (await succession.begin())) {
      await claimSocketPath(succession.waitingPath, place);
      opened.#listen(succession.waitingPath);
      opened.#turn = opened.#await(succession, place, deps).catch(onBug);
    } else {
      await opened.#keep(place, deps);
    }
    return opened;
  }

  /** Accepts connections of a socket that the leader of this worker has opened. Throws {@link KernelError} if it cannot be watched. */
  static share(fd: number, onStream: (stream: UnixStream) => void, deps: UnixListenerDeps): Listener {
    const shared = new UnixListener("the socket of frontends", onStream, deps);
    shared.#listener = KernelListener.adopt(fd, shared.#events);
    deps.onListener?.((next) => shared.#replace(next, deps));
    return shared;
  }

  /** Accepts from another socket: no client reaches the one before any more. */
  #replace(fd: number, { onBug }: UnixListenerDeps): void {
    if (this.#stop.signal.aborted) return;
    try {
      const next = KernelListener.adopt(duplicate(fd), this.#events);
      next.isPaused = this.#isPaused;
      this.#listener?.close();
      this.#listener = next;
    } catch (error) {
      if (!(error instanceof KernelError)) throw error;
      onBug(
        new ListenerError("cannot-listen", `cannot take the socket of frontends: ${error.message}`, { cause: error }),
      );
    }
  }

  get bytes(): { readonly received: number; readonly sent: number } {
    let [received, sent] = [this.#received, this.#sent];
    for (const { bytesRead, bytesWritten } of this.#streams) {
      received += bytesRead;
      sent += bytesWritten;
    }
    return { received, sent };
  }

  set isPaused(isPaused: boolean) {
    this.#isPaused = isPaused;
    if (this.#listener !== undefined) this.#listener.isPaused = isPaused;
  }

  stopAccepting(): void {
    this.#stop.abort();
    this.#listener?.close();
    // Else the socket would be listened on again.
    this.#kept?.stop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.stopAccepting();
    await this.#turn;
    await Promise.all(
      Array.from(this.#streams, (stream) => {
        const { promise, resolve } = Promise.withResolvers<void>();
        stream.once("close", () => resolve());
        stream.destroy();
        return promise;
      }),
    );
  }

  /** Keeps listening on the path; `first` does so already. Rejects with {@link ListenerError} or `SocketPathError`. */
  async #keep(place: UnixPlace, deps: UnixListenerDeps, first?: KernelListener): Promise<void> {
    const { log, clock, onBug, health = new Health({ log }).part("frontends") } = deps;
    const { path } = place;
    let ready = first;
    const serve = async (): Promise<AsyncDisposable> => {
      if (ready === undefined) await claimSocketPath(path, place);
      const listener = ready ?? this.#listen(path);
      ready = undefined;
      return {
        async [Symbol.asyncDispose]() {
          listener.close();
        },
      };
    };
    this.#kept = await keepSocket(serve, { path, health, log, clock, onBug });
  }

  /** Waits until the path is this listener's, and keeps it then. */
  async #await(succession: Succession, place: UnixPlace, deps: UnixListenerDeps): Promise<void> {
    const { log, clock, health } = deps;
    log.info("another server has the socket of frontends: waiting for it to end", { socket: place.path });
    health?.ok(succession.waitingPath);
    const turn = new AbortController();
    let own = fileIdentity(succession.waitingPath);
    await repeat(
      async () => {
        if (!succession.isAt(own)) {
          // Without a file the earlier server cannot hand over, nor can this one take the path.
          this.#listener?.close();
          await claimSocketPath(succession.waitingPath, { deleteExisting: true });
          this.#listen(succession.waitingPath);
          own = fileIdentity(succession.waitingPath);
          log.warn("listening again: the file of the socket was removed or replaced", {
            socket: succession.waitingPath,
          });
        }
        if (await succession.proceed(own)) turn.abort();
        health?.ok(succession.waitingPath);
      },
      {
        ...{ signal: AbortSignal.any([turn.signal, this.#stop.signal]), clock, everyMs: PROCEED_MS },
        onFailure: (error) => health?.degraded(error),
      },
    );
    if (this.#stop.signal.aborted) return;
    this.#listener?.moved(place.path);
    await this.#keep(place, deps, this.#listener);
    log.info("frontends come to this server now", { socket: place.path });
  }

  /** Throws {@link ListenerError}. */
  #listen(path: string): KernelListener {
    try {
      const listener = KernelListener.listen(path, { umask: UDS_UMASK, backlog: BACKLOG }, this.#events);
      listener.isPaused = this.#isPaused;
      this.#listener = listener;
      return listener;
    } catch (error) {
      if (!(error instanceof KernelError)) throw error;
      throw new ListenerError("cannot-listen", `cannot listen on ${path}: ${error.message}`, { cause: error });
    }
  }

  #adopt(fd: number): UnixStream {
    const stream = UnixStream.adopt(fd);
    const entry = this.#streams.add(stream);
    stream.once("close", () => {
      entry.remove();
      this.#received += stream.bytesRead;
      this.#sent += stream.bytesWritten;
    });
    return stream;
  }
}
