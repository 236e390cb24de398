import { type AbortOptions, pause } from "#base/async";
import type { IpAddress } from "#base/ip";
import type { NetNsRef } from "#kernel/netns";
import { connectInside, InsideError, request } from "#lab/inside";

/**
 * Like the probes of clouds, but faster: every 250 ms; after two failures a node gets no connections; after one success it gets them again.
 */
const PROBE = { everyMs: 250, timeoutMs: 2000, failAfter: 2 } as const;

/** A node behind a balancer. */
export interface Member {
  readonly node: string;
  readonly addresses: readonly IpAddress[];
}

interface MemberState {
  readonly member: Member;
  failures: number;
  isIn: boolean;
  /** Number of connections that were sent to the node. */
  sent: number;
  /** Number of these connections that are still open. */
  open: number;
}

/** A network load balancer: probes a health endpoint of every node, and spreads connections over those that pass. */
export class Balancer {
  readonly #from: NetNsRef;
  readonly #probe: { readonly port: number; readonly path: string };
  readonly #states: readonly MemberState[];
  #turn = 0;

  constructor(options: {
    /** The namespace of the balancer. */
    readonly from: NetNsRef;
    readonly members: readonly Member[];
    readonly probe: { readonly port: number; readonly path: string };
  }) {
    this.#from = options.from;
    this.#probe = options.probe;
    this.#states = options.members.map((member) => ({ member, failures: 0, isIn: false, sent: 0, open: 0 }));
  }

  /** Probes until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    await Promise.all(this.#states.map((state) => this.#watch(state, signal)));
  }

  /** Returns true if a node gets connections. */
  isIn(node: string): boolean {
    return this.#of(node)?.isIn === true;
  }

  /** The number of nodes that get connections. */
  get inCount(): number {
    return this.#states.filter(({ isIn }) => isIn).length;
  }

  sentTo(node: string): number {
    return this.#of(node)?.sent ?? 0;
  }

  openOn(node: string): number {
    return this.#of(node)?.open ?? 0;
  }

  /** The next node in turn, until the returned function is called; `undefined` while no node passes. */
  take(): { readonly member: Member; readonly done: () => void } | undefined {
    const passing = this.#states.filter(({ isIn }) => isIn);
    const state = passing[this.#turn % Math.max(1, passing.length)];
    this.#turn += 1;
    if (state === undefined) return undefined;
    state.sent += 1;
    state.open += 1;
    return {
      member: state.member,
      done: () => {
        state.open -= 1;
      },
    };
  }

  #of(node: string): MemberState | undefined {
    return this.#states.find(({ member }) => member.node === node);
  }

  async #watch(state: MemberState, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const passes = await this.#passes(state.member, signal);
      state.failures = passes ? 0 : state.failures + 1;
      if (passes) state.isIn = true;
      else if (state.failures >= PROBE.failAfter) state.isIn = false;
      await pause(PROBE.everyMs, { signal });
    }
  }

  async #passes({ addresses, node }: Member, signal: AbortSignal): Promise<boolean> {
    const [address] = addresses;
    if (address === undefined) return false;
    const options: AbortOptions & { readonly timeoutMs: number } = { signal, timeoutMs: PROBE.timeoutMs };
    try {
      const socket = await connectInside(this.#from, { address, port: this.#probe.port }, options);
      return (await request(socket, { path: this.#probe.path, host: node }, options)).status === 200;
    } catch (error) {
      if (error instanceof InsideError || signal.aborted) return false;
      throw error;
    }
  }
}
