import { matchesConntrack } from "./filter.ts";
import type { ConntrackEntry, ConntrackFilter, ConntrackPort } from "./types.ts";

/** Connection tracking in memory: tests add entries, features delete them. */
export class FakeConntrack implements ConntrackPort {
  readonly entries: ConntrackEntry[] = [];

  list(filter: ConntrackFilter): ConntrackEntry[] {
    return this.entries.filter((entry) => matchesConntrack(entry, filter));
  }

  async listInSlices(filter: ConntrackFilter): Promise<ConntrackEntry[]> {
    return this.list(filter);
  }

  async delete(filter: ConntrackFilter, when: (entry: ConntrackEntry) => boolean = () => true): Promise<number> {
    // As the real one, it asks again before the deletions.
    const found = new Set(this.list(filter).filter(when).filter(when));
    const left = this.entries.filter((entry) => !found.has(entry));
    this.entries.splice(0, this.entries.length, ...left);
    return found.size;
  }

  async clearMarks(filter: ConntrackFilter): Promise<number> {
    const found = new Set(this.list(filter).filter(({ mark }) => mark !== 0));
    const after = this.entries.map((entry) => (found.has(entry) ? { ...entry, mark: 0 } : entry));
    this.entries.splice(0, this.entries.length, ...after);
    return found.size;
  }

  [Symbol.dispose](): void {
    this.entries.length = 0;
  }
}
