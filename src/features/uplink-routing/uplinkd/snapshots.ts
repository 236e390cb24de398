import type { Snapshot, SnapshotSource } from "#base/uplink-model";

/** The snapshot before the kernel was read. */
const NOTHING_YET: Snapshot = {
  ready: false,
  maxCost: 0,
  dialTimeoutMs: 10_000,
  uplinks: [],
  localAddresses: [],
  bypass: [],
};

/** The newest snapshot and its listeners. */
export class Snapshots implements SnapshotSource {
  readonly #listeners = new Set<(snapshot: Snapshot) => void>();
  readonly #refresh: () => void;
  #current = NOTHING_YET;
  #text = "";

  constructor(refresh: () => void) {
    this.#refresh = refresh;
  }

  get current(): Snapshot {
    return this.#current;
  }

  onChange(listener: (snapshot: Snapshot) => void): Disposable {
    const own = (snapshot: Snapshot): void => listener(snapshot);
    this.#listeners.add(own);
    return { [Symbol.dispose]: () => void this.#listeners.delete(own) };
  }

  refresh(): void {
    this.#refresh();
  }

  /** Sets the snapshot; the listeners are called if it differs from the last one. */
  set(snapshot: Snapshot): void {
    const text = JSON.stringify(snapshot);
    if (text === this.#text) return;
    this.#text = text;
    this.#current = snapshot;
    for (const listener of this.#listeners) listener(snapshot);
  }
}
