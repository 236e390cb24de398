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
  const idle = new IdleTimer(options.clock, idleTimeoutMs, () => stop.abort());
  try {
    const body = await transport.stream(request, { signal: stop.signal, timeoutMs: options.timeoutMs });
    const decoder = new WatchDecoder<T>(request.action);
    options.onOpen?.();
    idle.restart();
    for await (const chunk of body as AsyncIterable<Uint8Array>) {
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
    if (isStreamFailure(error)) {
      throw new KubeError(
        "unreachable",
        `Cannot ${request.action}: the connection of the watch failed: ${describeError(error)}`,
        {
          cause: error,
        },
      );
    }
    throw error;
  } finally {
    idle.cancel();
    signal?.removeEventListener("abort", onAbort);
    stop.abort();
  }
}

/** True for the error of a broken connection: it has a code of the system or of undici. */
function isStreamFailure(error: unknown): boolean {
  return (
    error instanceof Error &&
    !(error instanceof KubeError) &&
    "code" in error &&
    typeof error.code === "string" &&
    /^(E[A-Z]+|UND_ERR_.*|ERR_STREAM_.*|HPE_.*)$/.test(error.code)
  );
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
