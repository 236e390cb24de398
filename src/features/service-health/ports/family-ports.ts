import { Backoff } from "#base/async";
import type { Clock } from "#base/clock";
import type { IpAddress, IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { ServiceHealthError } from "../errors.ts";
import type { EventLimit, EventSink } from "../events.ts";
import type { Listener, ProbeHttp } from "../http/index.ts";
import { type ServiceHealth, serviceKey } from "./count.ts";
import { type OpenService, type PortChange, planPorts } from "./plan.ts";

/**
 * First pause after a port could not be had, milliseconds; it doubles up to {@link MAX_RETRY_MS}. Trying costs microseconds, and a port that is
 * free again is to be had within 2 s; the Event is told of once in ten minutes.
 */
export const MIN_RETRY_MS = 500;
/** Longest pause, milliseconds. */
export const MAX_RETRY_MS = 1500;

interface ListeningService extends OpenService {
  readonly listeners: readonly Listener[];
}

interface Failure {
  readonly backoff: Backoff;
  /** Monotonic milliseconds. */
  retryAt: number;
}

/** Collaborators of a {@link FamilyPorts}. */
export interface FamilyPortsDeps {
  readonly http: ProbeHttp;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onEvent?: EventSink | undefined;
  /** Shared by the families: a Service is told of once, whichever of its addresses cannot be had. */
  readonly eventLimit: EventLimit;
}

/** The health ports of one family: which are open, which could not be had and when they are tried again. */
export class FamilyPorts {
  readonly #deps: FamilyPortsDeps;
  readonly #listening = new Map<string, ListeningService>();
  readonly #failures = new Map<string, Failure>();
  #wanted: ReadonlyMap<string, ServiceHealth> = new Map();
  #addresses: readonly IpAddress[] = [];

  constructor(deps: FamilyPortsDeps) {
    this.#deps = deps;
  }

  /** Those that could not be had are tried again at the next {@link FamilyPorts.apply}. */
  setServices(services: Iterable<ServiceHealth>): void {
    this.#wanted = new Map(Array.from(services, (service) => [serviceKey(service), service] as const));
    for (const [key, failure] of this.#failures) {
      if (this.#wanted.has(key)) failure.retryAt = 0;
      else this.#failures.delete(key);
    }
  }

  /** Link-local addresses are left out: they name no one place without a link. "Any" leaves no room for others beside it. */
  setAddresses(family: IpFamily, addresses: readonly IpAddress[]): void {
    const usable = addresses.filter((one) => one.family === family && !(family === 6 && one.isLinkLocal));
    const any = usable.find(({ isUnspecified }) => isUnspecified);
    this.#addresses = any === undefined ? [...new Map(usable.map((one) => [one.toString(), one])).values()] : [any];
  }

  /** As it is now, for the answer to a probe; `undefined`: no such Service any more. */
  find(key: string): ServiceHealth | undefined {
    return this.#wanted.get(key);
  }

  /** What is to be done now; Services whose time to be tried again has not come are left out. */
  plan(): PortChange[] {
    const now = this.#deps.clock.monotonic();
    const changes = planPorts(this.#wanted.values(), this.#addresses, this.#listening);
    const opening = new Set(changes.flatMap((change) => (change.op === "open" ? serviceKey(change.service) : [])));
    // Without an address to listen on there is nothing to try again.
    for (const key of this.#failures.keys()) if (!opening.has(key)) this.#failures.delete(key);
    return changes.filter(
      (change) => change.op === "close" || (this.#failures.get(serviceKey(change.service))?.retryAt ?? 0) <= now,
    );
  }

  /** One step of a plan. */
  apply(change: PortChange): void {
    if (change.op === "close") this.#close(change.service, change.addresses);
    else this.#open(change.service, change.addresses);
  }

  /** Milliseconds until something is to be tried again; `undefined`: nothing is. */
  get nextRetryMs(): number | undefined {
    const times = Array.from(this.#failures.values(), ({ retryAt }) => retryAt);
    return times.length === 0 ? undefined : Math.max(0, Math.min(...times) - this.#deps.clock.monotonic());
  }

  /** How many Services are listened for. */
  get size(): number {
    return this.#listening.size;
  }

  /** What is listened on for a Service. */
  listenersFor(key: string): readonly Listener[] {
    return this.#listening.get(key)?.listeners ?? [];
  }

  #close(key: string, addresses: readonly IpAddress[]): void {
    const open = this.#listening.get(key);
    if (open === undefined) return;
    const goes = (one: Listener): boolean => addresses.some((address) => address.equals(one.address));
    for (const listener of open.listeners.filter(goes)) listener.close();
    const left = open.listeners.filter((one) => !goes(one));
    if (left.length === 0) this.#listening.delete(key);
    else this.#listening.set(key, listeningOn(open.port, left));
  }

  /** All of a Service's addresses or none: one that answers on some of them only would look half there. */
  #open(service: ServiceHealth, addresses: readonly IpAddress[]): void {
    const key = serviceKey(service);
    const listeners = [...this.listenersFor(key)];
    try {
      for (const address of addresses) listeners.push(this.#deps.http.listen(address, service.port));
      this.#listening.set(key, listeningOn(service.port, listeners));
      if (this.#failures.delete(key)) this.#deps.log.info("health port can be had again", { service: key });
    } catch (error) {
      for (const one of listeners) one.close();
      this.#listening.delete(key);
      if (!(error instanceof ServiceHealthError)) throw error;
      this.#failed(service, error);
    }
  }

  #failed(service: ServiceHealth, error: ServiceHealthError): void {
    const key = serviceKey(service);
    const { clock, log, onEvent, eventLimit } = this.#deps;
    const backoff =
      this.#failures.get(key)?.backoff ?? new Backoff({ initialMs: MIN_RETRY_MS, maxMs: MAX_RETRY_MS, jitter: 0 });
    this.#failures.set(key, { backoff, retryAt: clock.monotonic() + backoff.next() });
    if (!eventLimit.take(key)) return;
    const { namespace, name, port } = service;
    const note = `Cannot answer health checks of ${key} on healthCheckNodePort ${port}: ${error.message}`;
    log.error("cannot listen on a health port; trying again", { service: key, port, error: error.message });
    onEvent?.({ about: { namespace, name }, type: "Warning", reason: "FailedToStartServiceHealthcheck", note });
  }
}

function listeningOn(port: number, listeners: readonly Listener[]): ListeningService {
  return { port, listeners, addresses: listeners.map(({ address }) => address) };
}
