import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import type { IpAddress, IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { Loop, type PassResult } from "#base/reconcile";
import type { ConntrackPort } from "#kernel/conntrack";

const FAMILIES: readonly IpFamily[] = [4, 6];
const UDP = 17;
/** The longest wait while nothing is due, milliseconds. */
const IDLE_MS = 60_000;
/** After a verdict the clients get this time to follow before their flows to the router that they leave are deleted, milliseconds. */
const FOLLOW_MS = 500;

/** A flow of tunnels that a client of this node has, as the node's connection tracking knows it. */
export interface TunnelFlow {
  /** The client's address. */
  readonly client: IpAddress;
  /** The destination of the client: the Service's address, or a router's own. */
  readonly to: IpAddress;
  /** The router that has the flow. */
  readonly router: IpAddress;
}

/**
 * The node's connection tracking, as far as it knows flows of tunnels. The table may be large, so what several Egresses ask for at once costs one reading for each family; and reading it
 * holds up no probe. Holds an entry for each Egress that asks.
 */
export class RouterFlows {
  readonly #parts: ConstructorParameters<typeof RouterFlows>[0];
  readonly #port: number;
  readonly #loop: Loop;
  /** Egresses whose flows are asked for. */
  readonly #asked = new Set<string>();
  /** Egresses whose flows must be compared, and when. */
  readonly #endAt = new Map<string, number>();

  constructor(
    parts: {
      /** The connection tracking of the node. */
      readonly openConntrack: () => ConntrackPort;
      /** The addresses of the Services of these Egresses: the families to read. */
      readonly servicesOf: (egress: string) => Iterable<IpAddress>;
      /** The flows of these Egresses, and of others; none if they cannot be read. */
      readonly onFlows: (egresses: ReadonlySet<string>, flows: readonly TunnelFlow[]) => void;
      /** Tells of flows of these Egresses whether their clients have left the way that they have. */
      readonly formerOf: (egresses: ReadonlySet<string>) => (flow: TunnelFlow) => boolean;
      readonly log: Logger;
      readonly clock: Clock;
    },
    { port }: { readonly port: number },
  ) {
    this.#parts = parts;
    this.#port = port;
    this.#loop = new Loop({ everyMs: IDLE_MS, clock: parts.clock });
  }

  /** Reads the flows of an Egress for `onFlows`. */
  ask(egress: string): void {
    this.#asked.add(egress);
    this.#loop.wake("flows asked for");
  }

  /** Deletes former flows of an Egress when its clients have had the time to follow a verdict. */
  endFormer(egress: string): void {
    this.#endAt.set(egress, this.#parts.clock.monotonic() + FOLLOW_MS);
    this.#loop.wake("flows to end");
  }

  /** Reads and deletes until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { clock } = this.#parts;
    const pass = async (): Promise<PassResult> => {
      await this.#read({ signal });
      await this.#end(clock.monotonic(), { signal });
      const atMostMs = Math.min(IDLE_MS, ...[...this.#endAt.values()].map((at) => at - clock.monotonic()));
      return { againMs: Math.max(1, atMostMs) };
    };
    await this.#loop.run(pass, { signal });
  }

  async #read(options: { readonly signal: AbortSignal }): Promise<void> {
    if (this.#asked.size === 0) return;
    const egresses = new Set(this.#asked);
    this.#asked.clear();
    const flows: TunnelFlow[] = [];
    await this.#withConntrack(async (conntrack) => {
      for (const filter of this.#filters(egresses))
        for (const found of await conntrack.listInSlices(filter, options)) flows.push(flowOf(found));
    });
    this.#parts.onFlows(egresses, flows);
  }

  async #end(now: number, options: { readonly signal: AbortSignal }): Promise<void> {
    const due = [...this.#endAt].filter(([, at]) => at <= now).map(([egress]) => egress);
    if (due.length === 0) return;
    for (const egress of due) this.#endAt.delete(egress);
    const egresses = new Set(due);
    const isFormer = this.#parts.formerOf(egresses);
    await this.#withConntrack(async (conntrack) => {
      let flows = 0;
      for (const filter of this.#filters(egresses))
        flows += await conntrack.delete(filter, (one) => isFormer(flowOf(one)), options);
      if (flows > 0) this.#parts.log.debug("flows to routers were deleted", { egresses: egresses.size, flows });
    });
  }

  #filters(egresses: Iterable<string>) {
    const families = new Set<IpFamily>();
    for (const egress of egresses) for (const { family } of this.#parts.servicesOf(egress)) families.add(family);
    return FAMILIES.filter((family) => families.has(family)).map((family) => {
      return { family, protocol: UDP, original: { dstPort: this.#port } };
    });
  }

  async #withConntrack(work: (conntrack: ConntrackPort) => Promise<void>): Promise<void> {
    try {
      using conntrack = this.#parts.openConntrack();
      await work(conntrack);
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      // The tunnels have other addresses all the same.
      this.#parts.log.warn(
        "flows to a router cannot be read or deleted in connection tracking; they end by themselves",
        { error: describeError(error) },
      );
    }
  }
}

const flowOf = ({ original, reply }: ReturnType<ConntrackPort["list"]>[number]): TunnelFlow => {
  return { client: original.src, to: original.dst, router: reply.src };
};
