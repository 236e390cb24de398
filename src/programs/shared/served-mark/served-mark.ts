import { closeSync, futimesSync, lstatSync, openSync } from "node:fs";
import { Backoff, type Dirty } from "#base/async";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";
import { repeat } from "#base/reconcile";
import { servedPath } from "../cni-plugin/index.ts";

/** The interval at which the mark is set, in milliseconds; a daemon that is killed loses this much of the tolerance. */
const EVERY_MS = 10_000;

/** The mark is not set; STATUS then tolerates no replacement of the daemon. */
class ServedMarkError extends ExpectedError<"unwritable" | "socket-gone"> {
  override readonly name = "ServedMarkError";
}

/**
 * Sets the mark of a socket's daemon as long as it can serve an ADD, until the signal aborts, and once more then. `dirty` is marked when it becomes able to.
 * The daemon must listen when this is called. When somebody has removed its socket or put another one in its place, calls do not reach it, and it sets no mark.
 */
export async function keepServedMark(
  deps: {
    readonly socket: string;
    readonly canServe: () => boolean;
    readonly dirty: Dirty;
    readonly health: Pick<HealthPart, "ok" | "degraded">;
    readonly clock: Clock;
  },
  { signal }: { readonly signal: AbortSignal },
): Promise<void> {
  const { socket, canServe, dirty, health, clock } = deps;
  const path = servedPath(socket);
  const bound = identityOf(socket);
  const set = async (): Promise<void> => {
    if (identityOf(socket) !== bound) {
      const text = `${socket} was removed or replaced: calls of container runtimes do not reach this program; start it again`;
      throw new ServedMarkError("socket-gone", text);
    }
    if (canServe()) setMark(path, clock.now());
    health.ok();
  };
  const onFailure = (error: unknown): void => health.degraded(error);
  // It keeps no program from being ready.
  health.ok();
  const backoff = new Backoff({ initialMs: EVERY_MS, maxMs: EVERY_MS });
  await repeat(set, { signal, dirty, everyMs: EVERY_MS, backoff, onFailure, clock });
  try {
    await set();
  } catch (error) {
    if (!(error instanceof ServedMarkError)) throw error;
    onFailure(error);
  }
}

/** Which file a path leads to; `undefined` if it leads to none. */
function identityOf(path: string): string | undefined {
  const found = lstatSync(path, { throwIfNoEntry: false });
  return found === undefined ? undefined : `${found.dev}:${found.ino}`;
}

function setMark(path: string, nowMs: number): void {
  try {
    const file = openSync(path, "a", 0o600);
    try {
      futimesSync(file, nowMs / 1000, nowMs / 1000);
    } finally {
      closeSync(file);
    }
  } catch (error) {
    if (!(error instanceof Error && "syscall" in error)) throw error;
    throw new ServedMarkError("unwritable", `cannot set the mark ${path}: ${error.message}`, { cause: error });
  }
}
