import { describeError } from "#base/errors";

/** So much of an error's text is shown, characters (docs/spec/service-proxy.md#1.4). */
const MAX_ERROR_LENGTH = 256;

/**
 * How stale one family's data plane is: the age of the oldest change that it does not have yet (docs/spec/service-proxy.md#1.2). Times are
 * given, never read: `now` is monotonic milliseconds, `wallMs` milliseconds since the epoch.
 */
export class FamilyHealth {
  #pendingSince: number | undefined;
  /** The oldest change that came while a sync was under way, which that sync may not have seen. */
  #queuedMeanwhile: number | undefined;
  #isSyncing = false;
  #isSynced = false;
  #lastUpdatedMs: number | undefined;
  #lastError: string | undefined;

  /** At least one sync succeeded. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** Of the last success, milliseconds since the epoch; `undefined` before the first. */
  get lastUpdatedMs(): number | undefined {
    return this.#lastUpdatedMs;
  }

  /** Of the failures since the last success, the last. */
  get lastError(): string | undefined {
    return this.#lastError;
  }

  /** As the reference has it: a proxy that has started looks updated. */
  assumeUpdated(wallMs: number): void {
    this.#lastUpdatedMs ??= wallMs;
  }

  /** A change waits to be synced. Later ones do not make it younger. */
  queued(now: number): void {
    this.#pendingSince ??= now;
    if (this.#isSyncing) this.#queuedMeanwhile ??= now;
  }

  /** A sync begins with all that is queued. */
  syncing(): void {
    this.#isSyncing = true;
    this.#queuedMeanwhile = undefined;
  }

  /** The sync succeeded. What was queued meanwhile stays pending: the sync began without it. */
  synced(wallMs: number): void {
    this.#pendingSince = this.#queuedMeanwhile;
    this.#queuedMeanwhile = undefined;
    this.#isSyncing = false;
    this.#isSynced = true;
    this.#lastUpdatedMs = wallMs;
    this.#lastError = undefined;
  }

  /** The sync failed: what was pending grows older. */
  failed(error: unknown): void {
    this.#queuedMeanwhile = undefined;
    this.#isSyncing = false;
    this.#lastError = describeError(error).slice(0, MAX_ERROR_LENGTH);
  }

  /** Milliseconds that the oldest change has waited; `undefined`: none waits. */
  pendingMs(now: number): number | undefined {
    return this.#pendingSince === undefined ? undefined : now - this.#pendingSince;
  }
}
