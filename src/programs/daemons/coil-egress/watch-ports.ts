import type { AbortOptions } from "#base/async";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { busiestClients, type CrowdedDestination, crowdedText } from "#features/egress";
import type { ConntrackPort } from "#kernel/conntrack";

/** The part of the kernel that {@link PortsWatch} uses, and its callbacks. */
export interface PortsParts {
  /** The destinations to which the common source ports have run out lately. Throws `KernelError`. */
  readonly crowded: () => readonly CrowdedDestination[];
  readonly conntrack: Pick<ConntrackPort, "listInSlices">;
  /** Sets the metric. */
  readonly report: (destinations: readonly CrowdedDestination[]) => void;
  /** Degraded while a destination is crowded; the router serves all the same. */
  readonly health: HealthPart;
  readonly log: Logger;
}

/** The log and the health name at most so many destinations and clients. */
const MAX_NAMED = 3;
/** Connection tracking is read once in so many looks at most: with full tables a reading takes a second of the processor. */
const LOOKS_PER_READING = 30;

/** Looks for destinations to which the source ports of a router have run out (docs/spec/pod-network.md#9.3). Holds those of the last look. */
export class PortsWatch {
  readonly #parts: PortsParts;
  #known: ReadonlySet<string> = new Set();
  /** Looks since the last reading of connection tracking. */
  #looks = LOOKS_PER_READING;

  constructor(parts: PortsParts) {
    this.#parts = parts;
  }

  /** Looks once. Rejects with `KernelError`, and when the signal aborts. */
  async look(options: AbortOptions): Promise<void> {
    const { crowded, report, health } = this.#parts;
    this.#looks += 1;
    const found = crowded();
    report(found);
    const before = this.#known;
    this.#known = new Set(found.map(crowdedText));
    if (found.length === 0) {
      health.ok();
      return;
    }
    const names = found.slice(0, MAX_NAMED).map(crowdedText);
    const more = found.length > MAX_NAMED ? [`${found.length - MAX_NAMED} more`] : [];
    health.degraded(new Error(`no common source port is left to ${[...names, ...more].join(", ")}`));
    const news = found.filter((one) => !before.has(crowdedText(one)));
    for (const one of news.slice(0, MAX_NAMED)) await this.#tell(one, options);
  }

  async #tell(destination: CrowdedDestination, options: AbortOptions): Promise<void> {
    const { log } = this.#parts;
    log.warn(
      "no common source port is left to a destination: each client has its own share, and is refused beyond it",
      { destination: crowdedText(destination), ...(await this.#mostFlows(destination, options)) },
    );
  }

  /** The clients with the most flows; nothing if they were read for another destination lately. */
  async #mostFlows(destination: CrowdedDestination, options: AbortOptions): Promise<{ readonly mostFlows?: string }> {
    if (this.#looks < LOOKS_PER_READING) return {};
    this.#looks = 0;
    const clients = await busiestClients(this.#parts.conntrack, destination, { limit: MAX_NAMED, ...options });
    return { mostFlows: clients.map(({ client, flows }) => `${client} (${flows})`).join(", ") };
  }
}
