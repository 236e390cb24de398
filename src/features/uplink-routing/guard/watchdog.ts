import type { Readable } from "node:stream";
import { poll } from "#base/async";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { type Logger, Repeats } from "#base/log";

/** Interval of heartbeats, in milliseconds. */
export const HEARTBEAT_MS = 400;
/**
 * The proxy counts as dead after this time without a heartbeat, in milliseconds. Together with the interval of heartbeats and the removal
 * this time is within the 2 s of docs/spec/uplink-proxy.md#14.
 */
const TIMEOUT_MS = 1500;
/** The two messages. `HEARTBEAT`: the proxy runs. `DISARM`: the proxy has removed the redirection itself and ends. */
export const HEARTBEAT = "b";
export const DISARM = "q";

export interface WatchdogDeps {
  /** Messages from the proxy: usually standard input, a pipe that ends whenever the proxy ends, for any reason. */
  readonly input: Readable;
  /** Removes the redirection. Called again if it throws. */
  readonly remove: () => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Runs the watchdog: removes the redirection as soon as the proxy ends or sends no heartbeat, so that a dead proxy never
 * cuts its host off. A proxy that was only slow installs the redirection again. Resolves when the proxy has ended and the redirection is
 * removed.
 */
export async function runTransparentWatchdog({ input, remove, clock, log }: WatchdogDeps): Promise<void> {
  const ended = Promise.withResolvers<"disarm" | "end">();
  const repeats = new Repeats();
  let cancel = (): void => undefined;
  const listen = (): void => {
    cancel();
    cancel = clock.after(TIMEOUT_MS, () => {
      if (repeats.isNew("proxy", "silent")) log.warn("no heartbeat from the proxy: its redirection is removed");
      attempt(remove, log, repeats);
      listen();
    });
  };
  listen();
  input.on("data", (bytes: Buffer) => {
    repeats.forget("proxy");
    listen();
    if (bytes.toString("latin1").includes(DISARM)) ended.resolve("disarm");
  });
  for (const event of ["end", "close", "error"]) input.on(event, () => ended.resolve("end"));
  const how = await ended.promise;
  cancel();
  if (how === "disarm") return;
  log.warn("the proxy has ended: its redirection is removed");
  await poll(() => attempt(remove, log, repeats), { until: (isRemoved) => isRemoved, everyMs: HEARTBEAT_MS, clock });
}

function attempt(remove: () => void, log: Logger, repeats: Repeats): boolean {
  try {
    remove();
    return true;
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    if (repeats.isNew("remove", error.message)) log.error("cannot remove the redirection", { error });
    return false;
  }
}
