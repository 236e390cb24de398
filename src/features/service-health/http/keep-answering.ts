import type { Clock } from "#base/clock";
import { formatListenAddress, type ListenAddress } from "#base/config";
import type { ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import { keepListening } from "#base/reconcile";
import { ServiceHealthError } from "../errors.ts";
import { EventLimit, type EventSink, type HealthEvent } from "../events.ts";
import { bindAddresses, listenAll } from "./bind.ts";
import type { Listener, ProbeHttp } from "./probe-http.ts";

/** Pause after an address could not be bound, in milliseconds: an address that becomes free is bound within 2 s. */
export const BIND_RETRY_MS = 1500;
/** A listener that is bound stays bound: time between two checks, in milliseconds. */
const IDLE_MS = 3_600_000;

/** The address, and how a failure is reported. */
export interface KeepAnsweringOptions {
  readonly address: ListenAddress;
  /** If true, the first failure rejects: `--bind-address-hard-fail`. */
  readonly hardFail?: boolean;
  readonly failure: HealthEvent["reason"];
  /** The service of the address, for the log, such as `health checks`. */
  readonly what: string;
  readonly signal: AbortSignal;
}

/** Collaborators of {@link keepAnswering}. */
export interface KeepAnsweringDeps {
  readonly http: ProbeHttp;
  readonly onEvent?: EventSink | undefined;
  readonly onListening: (listeners: readonly Listener[]) => void;
  readonly log: Logger;
  readonly clock: Clock;
}

/**
 * Listens until the signal aborts. If the address cannot be bound, tries again without end. Rejects with {@link ServiceHealthError} for an
 * invalid address and, with `hardFail`, if the address cannot be bound.
 */
export async function keepAnswering(deps: KeepAnsweringDeps, options: KeepAnsweringOptions): Promise<void> {
  const { log, clock } = deps;
  const { address, failure, what, signal, hardFail = false } = options;
  bindAddresses(address);
  const limit = new EventLimit(clock);
  let isListening = false;
  const listen = (): void => {
    const listeners = listenAll(deps.http, address);
    isListening = true;
    deps.onListening(listeners);
    log.info("listening", { what, addresses: listeners.map((one) => formatListenAddress(addressOf(one))) });
  };
  const onFailure = (error: ExpectedError): void => {
    if (hardFail || !(error instanceof ServiceHealthError)) throw error;
    if (!limit.take(failure)) return;
    log.error("cannot listen on a port for health or metrics; trying again", { what, error: error.message });
    deps.onEvent?.({ about: "node", type: "Warning", reason: failure, note: error.message });
  };
  await keepListening({
    ...{ signal, clock, listen, onFailure, isListening: () => isListening },
    ...{ everyMs: IDLE_MS, retryAfterMs: () => BIND_RETRY_MS },
  });
}

function addressOf({ address, port }: Listener): ListenAddress {
  return { host: address.toString(), port };
}
