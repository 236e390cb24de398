import type { ByteCount } from "../relay/index.ts";
import type { Recorder } from "./events.ts";

/** Bytes of all tunnels of a thread by interface, counted where they pass and reported at intervals. */
export class Traffic {
  readonly #totals = new Map<string, ByteCount>();
  readonly #reported = new Map<string, ByteCount>();

  /** Tunnels add their bytes here. */
  of(ifName: string): ByteCount {
    const known = this.#totals.get(ifName);
    if (known !== undefined) return known;
    const made = { up: 0, down: 0 };
    this.#totals.set(ifName, made);
    return made;
  }

  /** Reports the bytes since the last call. */
  flush(record: Recorder): void {
    for (const [ifName, { up, down }] of this.#totals) {
      const reported = this.#reported.get(ifName) ?? { up: 0, down: 0 };
      if (reported.up === up && reported.down === down) continue;
      this.#reported.set(ifName, { up, down });
      record({ kind: "bytes", ifName, up: up - reported.up, down: down - reported.down });
    }
  }
}
