import type { Clock } from "#base/clock";
import { type Endpoint, type ServicePort, servicePortId } from "../model/index.ts";
import type { TrackedPort } from "../track/index.ts";

/** An endpoint that was found not ready. */
interface Unready {
  /** `namespace/name` of its Service. */
  readonly service: string;
  /** Until when its flows stay, in milliseconds of the monotonic clock. */
  readonly keptUntil: number;
  /** True if {@link UnreadyEndpoints.takeEnded} has returned its Service. */
  isTaken: boolean;
}

/**
 * The endpoints that are not ready and keep their UDP flows for a while, as their Service asks for (docs/spec/service-proxy.md#2.11). Endpoints that terminate, or that are gone, keep none by
 * this. Holds an entry for each endpoint that is not ready, of such Services alone.
 */
export class UnreadyEndpoints {
  readonly #clock: Clock;
  /** The endpoints that are not ready; the key names port and endpoint. */
  readonly #unready = new Map<string, Unready>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Returns true if flows stay with an endpoint that is neither ready nor serving. The time begins with the first call. */
  keeps(port: ServicePort, endpoint: Endpoint): boolean {
    const { unreadyFlowSeconds, namespace, name } = port;
    if (unreadyFlowSeconds === undefined || endpoint.terminating) return false;
    const key = keyOf(port, endpoint);
    const now = this.#clock.monotonic();
    const known = this.#unready.get(key);
    if (known !== undefined) return now < known.keptUntil;
    const keptUntil = now + 1000 * unreadyFlowSeconds;
    this.#unready.set(key, { service: `${namespace}/${name}`, keptUntil, isTaken: false });
    return true;
  }

  /** Forgets the endpoints of these Services, `undefined`: of all, that are ready now or gone. `portsOf` gives their ports. */
  settle(services: ReadonlySet<string> | undefined, portsOf: () => Iterable<TrackedPort>): void {
    if (this.#unready.size === 0) return;
    const unready = new Set<string>();
    for (const { port, endpoints } of portsOf()) {
      if (port.unreadyFlowSeconds === undefined) continue;
      for (const one of endpoints) if (!one.ready && !one.serving) unready.add(keyOf(port, one));
    }
    for (const [key, { service }] of this.#unready)
      if ((services === undefined || services.has(service)) && !unready.has(key)) this.#unready.delete(key);
  }

  /** The time until flows stay no more with some endpoint, in milliseconds; `undefined`: there is none. */
  get nextMs(): number | undefined {
    const waiting = [...this.#unready.values()].filter(({ isTaken }) => !isTaken);
    if (waiting.length === 0) return undefined;
    return Math.max(0, Math.min(...waiting.map(({ keptUntil }) => keptUntil)) - this.#clock.monotonic());
  }

  /** The Services with an endpoint whose time has ended, each end once. */
  takeEnded(): ReadonlySet<string> {
    const now = this.#clock.monotonic();
    const ended = [...this.#unready.values()].filter(({ isTaken, keptUntil }) => !isTaken && keptUntil <= now);
    for (const one of ended) one.isTaken = true;
    return new Set(ended.map(({ service }) => service));
  }
}

function keyOf(port: ServicePort, { address, port: number }: Endpoint): string {
  return `${servicePortId(port)} ${address} ${number}`;
}
