import { createServer, type Server, type Socket } from "node:net";
import { Dirty } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { Logger } from "#base/log";
import { setsockopt } from "#kernel/ffi";
import type { ListenerSettings } from "../model/index.ts";
import { descriptorOf } from "../relay/index.ts";
import { listenText } from "../stats/index.ts";

const IPPROTO_TCP = 6;
/** include/uapi/linux/tcp.h. */
const TCP_NODELAY = 1;
/** Pauses after the first failures, milliseconds; then the last one for ever (spec uplink-proxy 4). */
const RETRY_MS = [1000, 2000, 4000, 8000, 16_000, 30_000] as const;
/** A listener that was up and ended is made again after this, milliseconds. */
const AGAIN_MS = 5000;

/** What a listener needs. */
export interface BindLoopDeps {
  readonly log: Logger;
  readonly clock: Clock;
  /** Each accepted client: paused, half-closable, with a listener for errors. */
  readonly onClient: (client: Socket, listener: ListenerSettings) => void;
  /** Told when it listens. */
  readonly onBound?: () => void;
  /** A listening descriptor where Node's own options are not enough; throws an error of the system when it cannot be had. */
  readonly openFd?: (listener: ListenerSettings) => number;
}

/** How a listener is made. */
export interface BindLoopOptions {
  readonly backlog: number;
  /** Several threads accept at the same address. */
  readonly reusePort: boolean;
}

/**
 * Listens on exactly one address, and tries again for ever where that cannot be: a busy port or an address that is not there yet is never
 * the end of the program (spec uplink-proxy 4).
 */
export class BindLoop {
  readonly listener: ListenerSettings;
  readonly #deps: BindLoopDeps;
  readonly #options: BindLoopOptions;
  readonly #retry: Dirty;
  #server: Server | undefined;

  constructor(listener: ListenerSettings, deps: BindLoopDeps, options: BindLoopOptions) {
    this.listener = listener;
    this.#deps = deps;
    this.#options = options;
    this.#retry = new Dirty(deps.clock);
  }

  get isBound(): boolean {
    return this.#server !== undefined;
  }

  /** What listens now. */
  get server(): Server | undefined {
    return this.#server;
  }

  /** The address may have appeared: no need to wait. */
  retryNow(): void {
    if (!this.isBound) this.#retry.mark();
  }

  /** Lasts until the signal aborts; then nothing listens any more. Clients that were accepted stay. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    for (let failures = 0; !signal.aborted; ) {
      const ended = await this.#listen(signal);
      if (ended === undefined) return;
      if (ended.wasBound) failures = 0;
      else this.#tellFailure(ended.error);
      const pauseMs = ended.wasBound ? AGAIN_MS : (RETRY_MS[Math.min(failures, RETRY_MS.length - 1)] ?? AGAIN_MS);
      failures += 1;
      await this.#retry.wait({ atMostMs: pauseMs, signal });
    }
  }

  /** One listener from its making to its end; `undefined` when the signal ended it. */
  #listen(signal: AbortSignal): Promise<{ readonly wasBound: boolean; readonly error: unknown } | undefined> {
    return new Promise((resolve) => {
      const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (client) => this.#accept(client));
      let wasBound = false;
      const end = (result: { readonly wasBound: boolean; readonly error: unknown } | undefined): void => {
        signal.removeEventListener("abort", onAbort);
        this.#server = undefined;
        server.close();
        resolve(result);
      };
      const onAbort = (): void => end(undefined);
      signal.addEventListener("abort", onAbort, { once: true });
      server.on("error", (error) => end({ wasBound, error }));
      server.once("listening", () => {
        wasBound = true;
        setNoDelay(server);
        this.#server = server;
        this.#tellSuccess();
        this.#deps.onBound?.();
      });
      try {
        this.#bind(server);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === undefined) throw error;
        end({ wasBound, error });
      }
    });
  }

  #bind(server: Server): void {
    const { address, port } = this.listener;
    const { backlog, reusePort } = this.#options;
    const { openFd } = this.#deps;
    if (openFd !== undefined) server.listen({ fd: openFd(this.listener) });
    else server.listen({ host: address.toString(), port, backlog, reusePort, ipv6Only: address.family === 6 });
  }

  #accept(client: Socket): void {
    // From the first moment on: an error without a listener would end the process. A close follows, and is what is acted upon.
    client.on("error", () => client.destroy());
    this.#deps.onClient(client, this.listener);
  }

  #tellSuccess(): void {
    const { role, interface: device } = this.listener;
    const where = listenText(this.listener);
    const text = role === "pod" ? `${device ?? "cni0"} listener on ${where}` : `listening on ${where}`;
    this.#deps.log.info(`mgmtproxy: ${text}`);
  }

  /** The address of a pod listener is normally missing for minutes: that is no news. */
  #tellFailure(error: unknown): void {
    const reason = describeError(error);
    const text = `mgmtproxy: listen ${listenText(this.listener)} failed (will retry): ${reason}`;
    const isAwaited = this.listener.role === "pod" && (error as NodeJS.ErrnoException).code === "EADDRNOTAVAIL";
    if (isAwaited) this.#deps.log.debug(text);
    else this.#deps.log.error(text);
  }
}

/** Linux hands the option of a listener on to what it accepts: one system call less for each client. */
function setNoDelay(server: Server): void {
  const fd = descriptorOf(server);
  if (fd === undefined) throw new Error("a server that listens has no descriptor");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, 1, "set TCP_NODELAY of a listener");
}
