import type { Clock } from "#base/clock";
import type { PortRequest, PortResult, VpcPort, VpcProvider } from "#cloud/vpc";
import { Collector } from "./collector.ts";

/** Ports of one request, and requests at a time for a project: more make the server wait for its database (docs/spec/vpc-nics.md#5.4). */
const MAX_BULK = 50;
const CREATES_AT_ONCE = 2;
/** Devices of one look-up, so that its URL stays short, and look-ups at a time. */
const MAX_DEVICES = 50;
const LOOKS_AT_ONCE = 2;
const GATHER_MS = 20;
/** Projects for which requests are gathered; one that is idle is made again. */
const MAX_COLLECTORS = 1000;

export interface PortRequestsDeps {
  readonly clock: Clock;
  readonly onCreate: (provider: string, count: number, seconds: number) => void;
}

export interface PortRequestsOptions {
  readonly signal: AbortSignal;
  readonly gatherMs?: number | undefined;
  readonly maxBulk?: number | undefined;
}

/** Requests for ports of several claims at a time, by provider and project. */
export class PortRequests {
  readonly #deps: PortRequestsDeps;
  readonly #options: PortRequestsOptions;
  readonly #creators = new Map<string, Collector<PortRequest, PortResult>>();
  readonly #finders = new Map<string, Collector<string, readonly VpcPort[]>>();
  /** The providers for which the collectors were made: a provider that was opened again is another one. */
  readonly #providers = new Map<string, VpcProvider>();

  constructor(deps: PortRequestsDeps, options: PortRequestsOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  /** Makes one port, together with others of its project. */
  async create(
    provider: VpcProvider,
    request: PortRequest,
    options: { readonly signal: AbortSignal },
  ): Promise<PortResult> {
    this.#renew(provider);
    const key = `${provider.name}/${request.vpc.projectId ?? ""}`;
    const { gatherMs = GATHER_MS, maxBulk = MAX_BULK, signal } = this.#options;
    const collector = kept(
      this.#creators,
      key,
      () =>
        new Collector(this.#deps, {
          gatherMs,
          maxItems: maxBulk,
          maxAtOnce: CREATES_AT_ONCE,
          signal,
          send: async (items, at) => {
            const startMs = this.#deps.clock.monotonic();
            const results = await provider.createPorts(items, at);
            const seconds = (this.#deps.clock.monotonic() - startMs) / 1000;
            this.#deps.onCreate(provider.name, items.length, seconds);
            return results;
          },
        }),
    );
    return collector.add(request, options);
  }

  /** The ports of one device, asked for together with others. */
  async find(
    provider: VpcProvider,
    deviceId: string,
    options: { readonly signal: AbortSignal },
  ): Promise<readonly VpcPort[]> {
    this.#renew(provider);
    const { gatherMs = GATHER_MS, signal } = this.#options;
    const collector = kept(
      this.#finders,
      provider.name,
      () =>
        new Collector<string, readonly VpcPort[]>(this.#deps, {
          gatherMs,
          maxItems: MAX_DEVICES,
          maxAtOnce: LOOKS_AT_ONCE,
          signal,
          send: async (ids, at) => {
            const ports = Map.groupBy(await provider.findPorts(ids, at), (port) => port.deviceId);
            return ids.map((id) => ports.get(id) ?? []);
          },
        }),
    );
    return collector.add(deviceId, options);
  }

  /** A provider that was opened again, with other credentials, has new collectors. */
  #renew(provider: VpcProvider): void {
    if (this.#providers.get(provider.name) === provider) return;
    this.#providers.set(provider.name, provider);
    this.#finders.delete(provider.name);
    for (const key of this.#creators.keys()) if (key.startsWith(`${provider.name}/`)) this.#creators.delete(key);
  }
}

function kept<Value>(map: Map<string, Value>, key: string, make: () => Value): Value {
  const known = map.get(key);
  if (known !== undefined) return known;
  const [oldest] = map.keys();
  // Those who wait for the oldest one hold it themselves.
  if (oldest !== undefined && map.size >= MAX_COLLECTORS) map.delete(oldest);
  const made = make();
  map.set(key, made);
  return made;
}
