import { sleep, TimeSlice } from "#base/async";
import type { Clock } from "#base/clock";
import type { IpAddress, IpFamily } from "#base/ip";
import { Loop, type PassResult } from "#base/reconcile";
import type { EndpointAnswer } from "#wire/http-endpoint";
import { EventLimit, type EventSink } from "../events.ts";
import { LINGER_MS, type Listener, ProbeHttp, type ProbeHttpDeps } from "../http/index.ts";
import { type ServiceHealth, serviceKey } from "./count.ts";
import { FamilyPorts } from "./family-ports.ts";

const SLICE_MS = 8;
/** Interval of comparisons without a failure or change, in milliseconds. */
const RESYNC_MS = 600_000;

/** Collaborators of a {@link ServicePorts}. */
export interface ServicePortsDeps extends ProbeHttpDeps {
  /** `isServing`: the proxy is healthy in all families. Eligibility of the Node does not count (docs/spec/service-proxy.md#1.5). */
  readonly health: { readonly isServing: boolean };
  readonly onEvent?: EventSink;
  readonly clock: Clock;
}

/** Settings of a {@link ServicePorts}. */
export interface ServicePortsOptions {
  /** The time for which probes are answered after the signal has aborted, in milliseconds. Default {@link LINGER_MS}. */
  readonly lingerMs?: number;
  /** Opening listeners yields to the event loop after this time, in milliseconds. Default 8. */
  readonly sliceMs?: number;
}

/**
 * A port for each Service of policy Local that has a healthCheckNodePort (docs/spec/service-proxy.md#1.5). The port tells whether this node
 * has endpoints of the Service. {@link ServicePorts.run} opens and closes the listeners that have changed.
 */
export class ServicePorts {
  readonly #deps: ServicePortsDeps;
  readonly #clock: Clock;
  readonly #lingerMs: number;
  readonly #sliceMs: number;
  readonly #http: ProbeHttp;
  readonly #families: Readonly<Record<IpFamily, FamilyPorts>>;
  /** The Services by key, for each family that was synced. */
  readonly #services = new Map<IpFamily, ReadonlyMap<string, ServiceHealth>>();
  readonly #loop: Loop;
  /** Service of each listener; kept after it closes, since connections outlive it. */
  readonly #owners = new WeakMap<Listener, { readonly family: IpFamily; readonly service: ServiceHealth }>();

  constructor(deps: ServicePortsDeps, options: ServicePortsOptions = {}) {
    this.#deps = deps;
    this.#clock = deps.clock;
    this.#lingerMs = options.lingerMs ?? LINGER_MS;
    this.#sliceMs = options.sliceMs ?? SLICE_MS;
    this.#http = new ProbeHttp((_request, at) => this.#answer(at), deps);
    this.#loop = new Loop({ everyMs: RESYNC_MS, clock: this.#clock });
    const { log, onEvent } = deps;
    const eventLimit = new EventLimit(this.#clock);
    const ports = (): FamilyPorts =>
      new FamilyPorts({ http: this.#http, clock: this.#clock, log, onEvent, eventLimit });
    this.#families = { 4: ports(), 6: ports() };
  }

  /**
   * Sets all Services of a family that need a port; to be called after each successful sync. A Service of one family is answered for on the
   * addresses of both: load balancers probe a node by the family that they reach it by.
   */
  setServices(family: IpFamily, services: Iterable<ServiceHealth>): void {
    this.#services.set(family, new Map(Array.from(services, (one) => [serviceKey(one), one])));
    for (const one of this.#services.keys()) this.#families[one].setServices(this.#answeredIn(one));
    this.#loop.wake("services");
  }

  /** The Services of the family, and those that only the other one has. */
  #answeredIn(family: IpFamily): readonly ServiceHealth[] {
    const other = this.#services.get(family === 4 ? 6 : 4) ?? [];
    return [...new Map([...other, ...(this.#services.get(family) ?? [])]).values()];
  }

  /**
   * Sets the addresses to listen on: those that take NodePorts, or only the wildcard if all addresses of the host take NodePorts. Addresses
   * of another family are left out.
   */
  setAddresses(family: IpFamily, addresses: readonly IpAddress[]): void {
    this.#families[family].setAddresses(family, addresses);
    this.#loop.wake("addresses");
  }

  /** Number of Services with listeners in a family. */
  size(family: IpFamily): number {
    return this.#families[family].size;
  }

  /** Listeners of a Service (`namespace/name`). */
  listenersFor(family: IpFamily, service: string): readonly Listener[] {
    return this.#families[family].listenersFor(service);
  }

  /**
   * Runs until the signal aborts, then answers probes for `lingerMs`, with 503 if the proxy is not serving. Rejects only because of a bug.
   */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    await using _http = this.#http;
    await this.#loop.run(() => this.#sync(signal), { signal });
    if (this.size(4) + this.size(6) > 0) await sleep(this.#lingerMs, { clock: this.#clock });
  }

  async #sync(signal: AbortSignal): Promise<PassResult> {
    const slice = new TimeSlice({ lengthMs: this.#sliceMs });
    for (const family of [4, 6] as const) {
      const ports = this.#families[family];
      for (const change of ports.plan()) {
        ports.apply(change);
        if (change.op === "open") this.#own(family, change.service);
        if (slice.isOver) await slice.yield();
        if (signal.aborted) return { againMs: 0 };
      }
    }
    const retries = [this.#families[4].nextRetryMs, this.#families[6].nextRetryMs];
    return { againMs: Math.min(RESYNC_MS, ...retries.filter((ms) => ms !== undefined)) };
  }

  #own(family: IpFamily, service: ServiceHealth): void {
    for (const listening of this.listenersFor(family, serviceKey(service)))
      this.#owners.set(listening, { family, service });
  }

  /** Answers any path and method. A connection that outlives its Service's port gets 503 and is closed. */
  #answer(at: Listener): EndpointAnswer | undefined {
    const owner = this.#owners.get(at);
    if (owner === undefined) return undefined;
    const { family, service: before } = owner;
    const key = serviceKey(before);
    const isOpen = this.listenersFor(family, key).includes(at);
    const localEndpoints = isOpen ? (this.#families[family].find(key)?.localEndpoints ?? 0) : 0;
    const isHealthy = this.#deps.health.isServing;
    // Tabs, and no line feed at the end: byte by byte the body of kube-proxy.
    const service = { namespace: before.namespace, name: before.name };
    const body = JSON.stringify({ service, localEndpoints, serviceProxyHealthy: isHealthy }, undefined, "\t");
    const headers = {
      "x-load-balancing-endpoint-weight": String(localEndpoints),
      ...(isOpen ? {} : { connection: "close" }),
    };
    return { status: localEndpoints > 0 && isHealthy ? 200 : 503, type: "application/json", headers, body };
  }
}
