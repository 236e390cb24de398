import { type Dirty, TaskGroup } from "#base/async";
import { ExpectedError } from "#base/errors";
import { type PassResult, repeat } from "#base/reconcile";
import type { VpcPort, VpcProvider } from "#cloud/vpc";
import { afterPoll, PLUGGED_MAX_MS } from "../plan/pace.ts";
import { polled, recordedIds } from "../plan/poll.ts";
import type { NicControllerDeps, NicControllerOptions } from "./deps.ts";
import type { ClaimEntry, ClaimLedger } from "./ledger.ts";

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
    const startDue = async (): Promise<PassResult> => {
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
            this.#options.polls.mark("poll ended");
          }
        });
      }
      return { againMs: Math.max(0, next - now) };
    };
    const { clock } = this.#deps;
    group.spawn((at) => repeat(startDue, { signal: at, clock, dirty: this.#options.polls, everyMs: IDLE_MS }));
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
    const due = [...this.#options.ledger.entries()].filter(
      ({ record: { claim, pollAt, pollEveryMs } }) =>
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
    entries: readonly ClaimEntry[],
    options: { readonly signal: AbortSignal },
  ): Promise<void> {
    const { clock, random } = this.#deps;
    const startedAt = clock.monotonic();
    // Also after a failure: a provider that is away is not asked all the time.
    for (const entry of entries) entry.update((record) => afterPoll(record, startedAt));
    const ports = await provider.pollPorts(
      entries.map(({ record }) => record.uid),
      options,
    );
    const byDevice = Map.groupBy(ports, ({ deviceId }) => deviceId);
    const seen = new Set(ports.map(({ id }) => id));
    const absent = entries.flatMap(({ record }) => recordedIds(record).filter((id) => !seen.has(id)));
    // A port whose device was changed is not in the list, and is there.
    const elsewhere =
      absent.length === 0 ? new Map<string, VpcPort>() : await provider.getPorts(absent, { ...options, isLook: true });
    for (const entry of entries) {
      const { record } = entry;
      if (record.touchedAt >= startedAt) {
        // It was changed meanwhile, so this poll is older than what is known.
        entry.update({ pollAt: startedAt + Math.min(record.pollEveryMs, PLUGGED_MAX_MS) });
        continue;
      }
      const answer = { ports: byDevice.get(record.uid) ?? [], elsewhere };
      const { change, isNews } = polled(record, answer, { now: clock.now(), random: random() });
      entry.update(change);
      if (isNews) this.#options.enqueue(entry.key);
    }
  }
}
