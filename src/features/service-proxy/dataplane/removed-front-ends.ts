import { PROTOCOL_NUMBERS } from "../model/index.ts";
import { type FrontEndKey, frontEndId, readFrontEndKey } from "../plan/index.ts";

/** Maximum of front ends that are kept; the oldest ones are forgotten. Syncs that fail again and again would add to them without end. */
export const MAX_REMOVED = 16_384;

/** The UDP front ends that were removed from the kernel, by id, until they are taken. They are kept through failed syncs. */
export class RemovedFrontEnds {
  #removed = new Map<string, FrontEndKey>();

  /** Adds a front end; one of another protocol is ignored. */
  add({ key, isNodePort }: FrontEndKey): void {
    if (readFrontEndKey({ key, isNodePort }).protocol !== PROTOCOL_NUMBERS.UDP) return;
    keepRemoved(this.#removed, [[frontEndId({ key, isNodePort }), { key, isNodePort }]]);
  }

  /** Returns and forgets the front ends. */
  take(): ReadonlyMap<string, FrontEndKey> {
    const removed = this.#removed;
    this.#removed = new Map();
    return removed;
  }
}

/** Adds front ends to `removed`, which keeps the newest {@link MAX_REMOVED}. */
export function keepRemoved(
  removed: Map<string, FrontEndKey>,
  more: Iterable<readonly [id: string, frontEnd: FrontEndKey]>,
): void {
  for (const [id, frontEnd] of more) {
    removed.delete(id);
    removed.set(id, frontEnd);
    if (removed.size <= MAX_REMOVED) continue;
    const [oldest] = removed.keys();
    if (oldest !== undefined) removed.delete(oldest);
  }
}
