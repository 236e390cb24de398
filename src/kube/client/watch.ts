import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { WatchEvent } from "./api.ts";
import { KubeError } from "./errors.ts";
import type { Transport, WireRequest } from "./transport.ts";
import { WatchDecoder } from "./watch-decoder.ts";

/** Opens a watch and yields its events; see `KubeApi.watch` for its end. */
export async function* watchEvents<T>(
  transport: Transport,
  request: WireRequest,
  options: {
    readonly signal?: AbortSignal | undefined;
    readonly timeoutMs?: number | undefined;
    readonly idleTimeoutMs?: number | undefined;
    readonly onOpen?: (() => void) | undefined;
    readonly clock: Clock;
  },
): AsyncGenerator<WatchEvent<T>, void, void> {
  const { signal, idleTimeoutMs } = options;
  signal?.throwIfAborted();
  const stop = new AbortController();
  const onAbort = (): void => stop.abort(signal?.reason);
  signal?.addEventListener("abort", onAbort, { once: true });
  // Not as for the deadline of a call, which gives the connection up: a watch of what does not change is silent over a good one.
  const idle = new IdleTimer(options.clock, idleTimeoutMs, () =>
    stop.abort(new Error(`the server sent nothing for ${idleTimeoutMs} ms`)),
  );
  try {
    const body = await transport.stream(request, { signal: stop.signal, timeoutMs: options.timeoutMs });
    const decoder = new WatchDecoder<T>(request.action);
    options.onOpen?.();
    idle.restart();
    for await (const chunk of chunksOf(body, request.action)) {
      idle.restart();
      yield* decoder.push(chunk);
    }
    if (stop.signal.aborted) throw stop.signal.reason;
    decoder.end();
  } catch (error) {
    if (signal?.aborted === true) throw signal.reason;
    if (idle.fired) {
      throw new KubeError("unreachable", `Cannot ${request.action}: the server sent nothing for ${idleTimeoutMs} ms`, {
        cause: error,
      });
    }
    throw error;
  } finally {
    idle.cancel();
    signal?.removeEventListener("abort", onAbort);
    stop.abort();
  }
}

/**
 * The chunks of a body. Throws `unreachable` for every failure to read: sockets, TLS, HTTP/1.1 and HTTP/2 have codes of their own, and all mean a broken
 * connection. Errors of the consumer do not pass through here.
 */
async function* chunksOf(body: AsyncIterable<Uint8Array>, action: string): AsyncGenerator<Uint8Array, void, void> {
  try {
    yield* body;
  } catch (cause) {
    throw new KubeError(
      "unreachable",
      `Cannot ${action}: the connection of the watch failed: ${describeError(cause)}`,
      { cause },
    );
  }
}

class IdleTimer {
  readonly #clock: Clock;
  readonly #afterMs: number | undefined;
  readonly #onIdle: () => void;
  #cancel: () => void = () => undefined;
  fired = false;

  constructor(clock: Clock, afterMs: number | undefined, onIdle: () => void) {
    this.#clock = clock;
    this.#afterMs = afterMs;
    this.#onIdle = onIdle;
  }

  restart(): void {
    this.#cancel();
    if (this.#afterMs === undefined) return;
    this.#cancel = this.#clock.after(this.#afterMs, () => {
      this.fired = true;
      this.#onIdle();
    });
  }

  cancel(): void {
    this.#cancel();
  }
}
