import { describeError } from "#base/errors";

/** Maximum length of an error's text, characters (docs/spec/service-proxy.md#1.4). */
const MAX_ERROR_LENGTH = 256;

/**
 * Staleness of one family's data plane: the age of the oldest change that is not in the kernel yet (docs/spec/service-proxy.md#1.2). Times are
 * parameters: `now` is monotonic milliseconds, `wallMs` milliseconds since the epoch.
 */
export class FamilyHealth {
  #pendingSince: number | undefined;
  /** The oldest change that came during a sync, which that sync may have missed. */
  #queuedMeanwhile: number | undefined;
  #isSyncing = false;
  #isSynced = false;
  #lastUpdatedMs: number | undefined;
  #lastError: string | undefined;

  /** True if at least one sync succeeded. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  /** Time of the last successful sync, milliseconds since the epoch; `undefined` before the first one. */
  get lastUpdatedMs(): number | undefined {
    return this.#lastUpdatedMs;
  }

  /** The last error since the last successful sync; `undefined` if there was no error. */
  get lastError(): string | undefined {
    return this.#lastError;
  }

  /** Used in the mode `compatible`: as in kube-proxy, a proxy counts as updated once it has started. */
  assumeUpdated(wallMs: number): void {
    this.#lastUpdatedMs ??= wallMs;
  }

  /** Records that a change waits to be synced. Later changes do not lower the age. */
  queued(now: number): void {
    this.#pendingSince ??= now;
    if (this.#isSyncing) this.#queuedMeanwhile ??= now;
  }

  /** Records that a sync begins, with all queued changes. */
  syncing(): void {
    this.#isSyncing = true;
    this.#queuedMeanwhile = undefined;
  }

  /** Records that the sync succeeded. Changes that were queued during the sync stay pending: the sync began without them. */
  synced(wallMs: number): void {
    this.#pendingSince = this.#queuedMeanwhile;
    this.#queuedMeanwhile = undefined;
    this.#isSyncing = false;
    this.#isSynced = true;
    this.#lastUpdatedMs = wallMs;
    this.#lastError = undefined;
  }

  /** Records that the sync failed: pending changes grow older. */
  failed(error: unknown): void {
    this.#queuedMeanwhile = undefined;
    this.#isSyncing = false;
    this.#lastError = describeError(error).slice(0, MAX_ERROR_LENGTH);
  }

  /** The time for which the oldest change has waited, in milliseconds; `undefined`: no change waits. */
  pendingMs(now: number): number | undefined {
    return this.#pendingSince === undefined ? undefined : now - this.#pendingSince;
  }
}
