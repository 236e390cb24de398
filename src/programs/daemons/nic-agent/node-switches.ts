import { Backoff, type Dirty, retry } from "#base/async";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";
import { reconcile } from "#base/reconcile";
import { OpenVSwitch } from "#cloud/ovsdb";
import type { NicNetwork } from "#features/nic-cni";
import type { Part } from "../../shared/daemon-kit/index.ts";
import { RESYNC_MS } from "./resync.ts";

/** The pauses between tries to watch the switch, milliseconds. */
const AGAIN = { initialMs: 200, maxMs: 5000 };

/** Clients of the databases of switches: one for each socket that a network of this node names. */
export class NodeSwitches {
  readonly #clock: Clock;
  readonly #open = new Map<string, OpenVSwitch>();

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
  }

  of(socketPath: string): OpenVSwitch {
    const found = this.#open.get(socketPath) ?? new OpenVSwitch({ clock: this.#clock }, { socketPath });
    this.#open.set(socketPath, found);
    return found;
  }
}

/** Ports that a switch has lost are plugged again: after each mark of `dirty`, and once in {@link RESYNC_MS}. */
export function switchPart(
  {
    network,
    used,
    dirty,
    health,
    onReplugged,
  }: {
    readonly network: Pick<NicNetwork, "repair">;
    /** The databases of the switches that pods need now. */
    readonly used: UsedSwitches;
    readonly dirty: Dirty;
    readonly health: HealthPart;
    readonly onReplugged: (ports: number) => void;
  },
  { resyncMs = RESYNC_MS }: { readonly resyncMs?: number } = {},
): Part {
  const sync = async ({ signal }: { readonly signal: AbortSignal }): Promise<number> => {
    let ports = 0;
    for (const ovsdb of used.take()) ports += await network.repair(ovsdb, { signal });
    onReplugged(ports);
    return ports;
  };
  return { name: "switch", run: ({ signal }) => reconcile({ dirty, health, signal, resyncMs, sync }) };
}

/** Which switches pods need, and whether others than at the last repair. */
export class UsedSwitches {
  readonly #read: () => ReadonlySet<string>;
  #known = "";

  constructor(read: () => ReadonlySet<string>) {
    this.#read = read;
  }

  /** Returns true if a switch is needed that was not before, or one is not needed any more. */
  get hasChanged(): boolean {
    return [...this.#read()].join() !== this.#known;
  }

  /** The switches that are needed now, which count as known. */
  take(): ReadonlySet<string> {
    const now = this.#read();
    this.#known = [...now].join();
    return now;
  }
}

/** Watches the agent's own switch, and marks `dirty` at each change of it. A switch that is gone is watched again after a pause. */
export function switchWatchPart({
  watch,
  dirty,
  clock,
}: {
  readonly watch: OpenVSwitch["watch"];
  readonly dirty: Dirty;
  readonly clock: Clock;
}): Part {
  const backoff = new Backoff(AGAIN);
  const onSwitch = (): void => {
    backoff.reset();
    dirty.mark("switch");
  };
  const isPassing = (error: unknown): boolean => {
    // The health says that a switch is gone where pods need it.
    dirty.mark("switch gone");
    return error instanceof ExpectedError;
  };
  return {
    name: "switch-watch",
    run: ({ signal }) => retry(() => watch(onSwitch, { signal }), { signal, clock, backoff, isPassing }),
  };
}
