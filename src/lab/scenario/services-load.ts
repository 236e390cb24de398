import { sleep } from "#base/async";
import type { NetNsRef } from "#kernel/netns";
import type { Balancer } from "./services-balancer.ts";
import type { LoadResult } from "./services-report.ts";
import { requestBackend } from "./services-request.ts";

/** Clients of each Service, with short and with long connections. */
const CLIENTS = { short: 3, long: 3 } as const;
const PAUSE_MS = 20;
const LONG_MS = 1000;
/** Timeout of an answer, in milliseconds: longer than a lost packet and its retransmissions take. */
const ANSWER_MS = 15_000;
/** Maximum number of failures whose messages are kept; all failures are counted. */
const MAX_FAILURES = 1000;

/** A Service with clients outside the cluster. */
export interface LoadTarget {
  readonly service: string;
  readonly balancer: Balancer;
  readonly nodePort: number;
}

/** Clients outside the cluster that connect through balancers, one connection after the other, until {@link Load.stop}. */
export class Load {
  readonly #from: NetNsRef;
  readonly #targets: readonly LoadTarget[];
  readonly #startedMs = performance.now();
  #connections = 0;
  #long = 0;
  #isStopped = false;
  readonly #failed: string[] = [];

  constructor(from: NetNsRef, targets: readonly LoadTarget[]) {
    this.#from = from;
    this.#targets = targets;
  }

  get connections(): number {
    return this.#connections;
  }

  /** Lasts until {@link stop} and until every connection is answered. Rejects with the signal's reason. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<LoadResult> {
    const clients = this.#targets.flatMap((target) => [
      ...Array.from({ length: CLIENTS.short }, (_, number) => this.#client(target, { number, signal })),
      ...Array.from({ length: CLIENTS.long }, (_, number) => this.#client(target, { number, slowMs: LONG_MS, signal })),
    ]);
    await Promise.all(clients);
    return { connections: this.#connections, long: this.#long, failed: this.#failed };
  }

  /** Stops making new connections. Open connections continue to their end. */
  stop(): void {
    this.#isStopped = true;
  }

  async #client(
    { service, balancer, nodePort }: LoadTarget,
    options: { readonly number: number; readonly slowMs?: number; readonly signal: AbortSignal },
  ): Promise<void> {
    for (let turn = options.number; !this.#isStopped; turn += 1) {
      await this.#connect({ service, balancer, nodePort }, { ...options, turn });
      await sleep(PAUSE_MS, options);
    }
  }

  async #connect(
    { service, balancer, nodePort }: LoadTarget,
    options: { readonly turn: number; readonly slowMs?: number; readonly signal: AbortSignal },
  ): Promise<void> {
    const beganMs = performance.now();
    const taken = balancer.take();
    this.#connections += 1;
    if (options.slowMs !== undefined) this.#long += 1;
    if (taken === undefined) return this.#fail(service, beganMs, "no node passes the balancer's probes");
    const { member, done } = taken;
    const address = member.addresses[options.turn % member.addresses.length];
    if (address === undefined) return done();
    try {
      const result = await requestBackend(
        this.#from,
        { address, port: nodePort },
        { ...options, timeoutMs: ANSWER_MS },
      );
      if (!("answer" in result)) this.#fail(service, beganMs, `through ${member.node}: ${result.error}`);
    } finally {
      done();
    }
  }

  #fail(service: string, beganMs: number, text: string): void {
    const at = (beganMs - this.#startedMs) / 1000;
    const length = (performance.now() - beganMs) / 1000;
    if (this.#failed.length < MAX_FAILURES)
      this.#failed.push(`${service}, started at ${at.toFixed(2)} s, for ${length.toFixed(2)} s, ${text}`);
  }
}
