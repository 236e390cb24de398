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
 * First pause after a port could not be bound, in milliseconds; the pause doubles up to {@link MAX_RETRY_MS}. An attempt takes only
 * microseconds, and a port that becomes free is bound within 2 s. The Event is written once in ten minutes.
 */
export const MIN_RETRY_MS = 500;
/** Longest pause, in milliseconds. */
export const MAX_RETRY_MS = 1500;

interface ListeningService extends OpenService {
  readonly listeners: readonly Listener[];
}

interface Failure {
  readonly backoff: Backoff;
  /** Time of the next attempt, monotonic milliseconds. */
  retryAt: number;
}

/** Collaborators of a {@link FamilyPorts}. */
export interface FamilyPortsDeps {
  readonly http: ProbeHttp;
  readonly clock: Clock;
  readonly log: Logger;
  readonly onEvent?: EventSink | undefined;
  /** Shared by the families: a Service gets one Event, also if several of its addresses cannot be bound. */
  readonly eventLimit: EventLimit;
}

/** The health ports of one family: the open ones, and the failed ones with the time of the next attempt. */
export class FamilyPorts {
  readonly #deps: FamilyPortsDeps;
  readonly #listening = new Map<string, ListeningService>();
  readonly #failures = new Map<string, Failure>();
  #wanted: ReadonlyMap<string, ServiceHealth> = new Map();
  #addresses: readonly IpAddress[] = [];

  constructor(deps: FamilyPortsDeps) {
    this.#deps = deps;
  }

  /** Sets the Services. Failed ports are tried again at the next {@link FamilyPorts.apply}. */
  setServices(services: Iterable<ServiceHealth>): void {
    this.#wanted = new Map(Array.from(services, (service) => [serviceKey(service), service] as const));
    for (const [key, failure] of this.#failures) {
      if (this.#wanted.has(key)) failure.retryAt = 0;
      else this.#failures.delete(key);
    }
  }

  /** Sets the addresses. Leaves out IPv6 link-local ones, which need an interface. A wildcard replaces all others. */
  setAddresses(family: IpFamily, addresses: readonly IpAddress[]): void {
    const usable = addresses.filter((one) => one.family === family && !(family === 6 && one.isLinkLocal));
    const any = usable.find(({ isUnspecified }) => isUnspecified);
    this.#addresses = any === undefined ? [...new Map(usable.map((one) => [one.toString(), one])).values()] : [any];
  }

  /** The current state of a Service; `undefined`: the Service was deleted. */
  find(key: string): ServiceHealth | undefined {
    return this.#wanted.get(key);
  }

  /** The changes to make now. Leaves out Services that are not due for another attempt. */
  plan(): PortChange[] {
    const now = this.#deps.clock.monotonic();
    const changes = planPorts(this.#wanted.values(), this.#addresses, this.#listening);
    const opening = new Set(changes.flatMap((change) => (change.op === "open" ? serviceKey(change.service) : [])));
    // Failures of Services that no longer need an address are dropped.
    for (const key of this.#failures.keys()) if (!opening.has(key)) this.#failures.delete(key);
    return changes.filter(
      (change) => change.op === "close" || (this.#failures.get(serviceKey(change.service))?.retryAt ?? 0) <= now,
    );
  }

  /** Makes one change of a plan. */
  apply(change: PortChange): void {
    if (change.op === "close") this.#close(change.service, change.addresses);
    else this.#open(change.service, change.addresses);
  }

  /** Time until the next attempt, in milliseconds; `undefined`: no attempt is needed. */
  get nextRetryMs(): number | undefined {
    const times = Array.from(this.#failures.values(), ({ retryAt }) => retryAt);
    return times.length === 0 ? undefined : Math.max(0, Math.min(...times) - this.#deps.clock.monotonic());
  }

  /** Number of Services with listeners. */
  get size(): number {
    return this.#listening.size;
  }

  /** Listeners of a Service. */
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

  /** Opens all addresses of a Service, or none: load balancers must not find a Service on some addresses only. */
  #open(service: ServiceHealth, addresses: readonly IpAddress[]): void {
    const key = serviceKey(service);
    const listeners = [...this.listenersFor(key)];
    try {
      // The addresses are the host's: what one of them is not ready for must not close the others.
      for (const address of addresses) {
        listeners.push(this.#deps.http.listen(address, service.port, { freebind: true }));
      }
      this.#listening.set(key, listeningOn(service.port, listeners));
      if (this.#failures.delete(key)) this.#deps.log.info("a health check port is open again", { service: key });
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
    log.error("cannot listen on a health check port; trying again", { service: key, port, error: error.message });
    onEvent?.({ about: { namespace, name }, type: "Warning", reason: "FailedToStartServiceHealthcheck", note });
  }
}

function listeningOn(port: number, listeners: readonly Listener[]): ListeningService {
  return { port, listeners, addresses: listeners.map(({ address }) => address) };
}
