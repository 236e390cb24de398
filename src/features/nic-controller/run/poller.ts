import { type Dirty, TaskGroup } from "#base/async";
import { ExpectedError } from "#base/errors";
import type { VpcPort, VpcProvider } from "#cloud/vpc";
import { ownPorts } from "../plan/identity.ts";
import { hasPort, wished } from "../plan/nic.ts";
import { observeNic } from "../plan/observe.ts";
import type { NicControllerDeps, NicControllerOptions } from "./deps.ts";
import type { ClaimLedger } from "./ledger.ts";
import { type ClaimRecord, hasCondition, nicsOf } from "./record.ts";

/** Growth of the pause between looks at a port that is plugged and not active, and its limit, in milliseconds (docs/spec/vpc-nics.md#5.6). */
const SLOWER = 1.5;
const PLUGGED_MAX_MS = 2000;
/** The longest pause of the loop, in milliseconds; a mark ends it. */
const IDLE_MS = 60_000;
/** The pause after a failure, in milliseconds. */
const RETRY_MS = 1000;
/** The share of a claim's pause by which it may be looked at earlier, together with others. */
const EARLY = 0.2;
/** Devices in one list. */
const MAX_DEVICES = 50;

/** Looks at the ports of claims: one list of a provider for each fifty of those that are due, never a request for a port. */
export class PortPoller {
  readonly #deps: Pick<NicControllerDeps, "provider" | "clock" | "log" | "random">;
  readonly #options: Pick<NicControllerOptions, "enqueue"> & { readonly ledger: ClaimLedger; readonly polls: Dirty };

  constructor(
    deps: Pick<NicControllerDeps, "provider" | "clock" | "log" | "random">,
    options: Pick<NicControllerOptions, "enqueue"> & { readonly ledger: ClaimLedger; readonly polls: Dirty },
  ) {
    this.#deps = deps;
    this.#options = options;
  }

  /**
   * Runs until the signal aborts. Each provider is looked at by itself, so one that is away, or is not known any more, holds up no other. Failures of
   * providers are tried again; rejects for bugs.
   */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const group = new TaskGroup(signal);
    const busy = new Set<string>();
    /** Times of providers that have failed, on the monotonic clock; no others are looked at again before their claims are due. */
    const notBefore = new Map<string, number>();
    while (!group.signal.aborted) {
      const now = this.#deps.clock.monotonic();
      let next = now + IDLE_MS;
      for (const [name, at] of this.#dueTimes()) {
        if (busy.has(name)) continue;
        const startAt = Math.max(at, notBefore.get(name) ?? at);
        if (startAt > now) {
          next = Math.min(next, startAt);
          continue;
        }
        busy.add(name);
        notBefore.delete(name);
        group.spawn(async (at) => {
          try {
            if (!(await this.#poll(name, at))) notBefore.set(name, this.#deps.clock.monotonic() + RETRY_MS);
          } finally {
            busy.delete(name);
            this.#options.polls.mark();
          }
        });
      }
      await this.#options.polls.wait({ atMostMs: Math.max(0, next - now), signal: group.signal });
    }
    await group.wait();
  }

  /** When the ports of each provider are looked at next. */
  #dueTimes(): ReadonlyMap<string, number> {
    const times = new Map<string, number>();
    for (const { claim, pollAt } of this.#options.ledger.records()) {
      if (pollAt === undefined) continue;
      const { provider } = claim.spec;
      times.set(provider, Math.min(pollAt, times.get(provider) ?? pollAt));
    }
    return times;
  }

  /** Looks once at the ports of a provider's claims that are due, or nearly so. Returns whether it has answered. */
  async #poll(name: string, signal: AbortSignal): Promise<boolean> {
    const now = this.#deps.clock.monotonic();
    const due = [...this.#options.ledger.records()].filter(
      ({ claim, pollAt, pollEveryMs }) =>
        claim.spec.provider === name && pollAt !== undefined && pollAt <= now + EARLY * pollEveryMs,
    );
    try {
      const provider = this.#deps.provider(name);
      for (let at = 0; at < due.length; at += MAX_DEVICES) {
        await this.#look(provider, due.slice(at, at + MAX_DEVICES), { signal });
      }
      return true;
    } catch (error) {
      if (signal.aborted) return true;
      if (!(error instanceof ExpectedError)) throw error;
      this.#deps.log.debug("ports cannot be looked at", { provider: name, error: error.message });
      return false;
    }
  }

  async #look(
    provider: VpcProvider,
    records: readonly ClaimRecord[],
    options: { readonly signal: AbortSignal },
  ): Promise<void> {
    const startedAt = this.#deps.clock.monotonic();
    // Also after a failure: a provider that is away is not asked all the time.
    for (const record of records) this.#postpone(record, startedAt);
    const ports = await provider.pollPorts(
      records.map(({ uid }) => uid),
      options,
    );
    const byDevice = Map.groupBy(ports, ({ deviceId }) => deviceId);
    const seen = new Set(ports.map(({ id }) => id));
    const absent = records.flatMap((record) => recordedIds(record).filter((id) => !seen.has(id)));
    // A port whose device was changed is not in the list, and is there.
    const elsewhere =
      absent.length === 0 ? new Map<string, VpcPort>() : await provider.getPorts(absent, { ...options, isLook: true });
    for (const record of records) {
      if (record.touchedAt >= startedAt) {
        // It was changed meanwhile, so this look is older than what is known.
        record.pollAt = startedAt + Math.min(record.pollEveryMs, PLUGGED_MAX_MS);
        continue;
      }
      this.#note(record, byDevice.get(record.uid) ?? [], elsewhere);
    }
  }

  #note(record: ClaimRecord, ports: readonly VpcPort[], elsewhere: ReadonlyMap<string, VpcPort>): void {
    const { clock, random } = this.#deps;
    const now = clock.now();
    const ids = recordedIds(record);
    const found = new Map(ports.map((port) => [port.id, port]));
    for (const id of ids) {
      const port = elsewhere.get(id);
      if (!found.has(id) && port !== undefined) found.set(id, port);
    }
    const downSince = new Map(
      ids
        .filter((id) => found.get(id)?.status === "DOWN")
        .map((id) => [id, record.observation.downSince.get(id) ?? now] as const),
    );
    record.observation = { ports: found, missing: new Set(ids.filter((id) => !found.has(id))), downSince };
    const recorded = new Map(
      nicsOf(record).flatMap((nic) => (nic.portID === undefined ? [] : [[nic.name, nic.portID]])),
    );
    const known = new Set([...record.claim.spec.nics, ...nicsOf(record)].map(({ name }) => name));
    record.surplus = [...ownPorts(ports, record.uid, recorded, record.namespace)].flatMap(
      ([nic, { port, surplus }]) => {
        // A NIC that the pod had once: a request for its port was done after it was given up.
        if (!known.has(nic)) return [port.id, ...surplus.map(({ id }) => id)];
        return port.id === recorded.get(nic) ? surplus.map(({ id }) => id) : [];
      },
    );
    const unrecorded = [...ownPorts(ports, record.uid, recorded, record.namespace).keys()].filter(
      // Of a port that cannot be deleted the NIC knows, and has its pause.
      (nic) => known.has(nic) && !recorded.has(nic) && !record.undeleted.has(nic),
    );
    for (const nic of unrecorded) record.mayHavePort.add(nic);
    if (unrecorded.length > 0) record.isLookedUp = false;
    // Whether the pod ends decides only about what is reported.
    const isPlugged = hasCondition(record.claim, "Plugged");
    const look = { pod: { isPlugged, isStarted: true, isEnding: false }, now, random: random() };
    const isNews = wished(record.claim.spec.nics, nicsOf(record)).some(
      (nic) => observeNic(nic, record.observation, look) !== nic,
    );
    if (isNews || unrecorded.length > 0 || record.surplus.length > 0)
      this.#options.enqueue(`${record.namespace}/${record.uid}`);
  }

  #postpone(record: ClaimRecord, now: number): void {
    if (record.pollEveryMs < PLUGGED_MAX_MS && now >= record.quickUntil) {
      record.pollEveryMs = Math.min(PLUGGED_MAX_MS, record.pollEveryMs * SLOWER);
    }
    record.pollAt = now + record.pollEveryMs;
  }
}

function recordedIds(record: ClaimRecord): readonly string[] {
  return nicsOf(record).flatMap((nic) => (nic.portID !== undefined && hasPort(nic) ? [nic.portID] : []));
}
