import { readFile, stat } from "node:fs/promises";
import type { Clock } from "#base/clock";
import { IpAddress } from "#base/ip";

/** The file is looked at again after this, milliseconds. */
const RECHECK_MS = 5000;
/** A longer file is not read, bytes. */
const MAX_FILE_BYTES = 1 << 20;

/** Names of hosts(5), lower case, with their addresses in the file's order. Lines that are none are passed over, as resolvers do. */
export function parseHosts(text: string): Map<string, IpAddress[]> {
  const byName = new Map<string, IpAddress[]>();
  for (const line of text.split("\n")) {
    const [addressText = "", ...names] = line
      .replace(/#.*$/s, "")
      .split(/\s+/)
      .filter((word) => word !== "");
    const address = IpAddress.tryParse(addressText);
    if (address === undefined) continue;
    for (const name of new Set(names.map((each) => each.toLowerCase().replace(/\.$/, "")))) {
      const known = byName.get(name);
      if (known === undefined) byName.set(name, [address]);
      else known.push(address);
    }
  }
  return byName;
}

/** The system's own list of names, read again when it changes. */
export class HostsFile {
  readonly #path: string;
  readonly #clock: Clock;
  #byName: ReadonlyMap<string, readonly IpAddress[]> = new Map();
  #version = "";
  #checkedAt = Number.NEGATIVE_INFINITY;

  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  /** The addresses of a name; empty when the file does not have it. A file that cannot be read has none. */
  async lookup(name: string): Promise<readonly IpAddress[]> {
    if (this.#clock.monotonic() - this.#checkedAt >= RECHECK_MS) {
      this.#checkedAt = this.#clock.monotonic();
      await this.#refresh();
    }
    return this.#byName.get(name) ?? [];
  }

  async #refresh(): Promise<void> {
    try {
      const { mtimeMs, size, ino } = await stat(this.#path);
      const version = `${ino}:${mtimeMs}:${size}`;
      if (version === this.#version || size > MAX_FILE_BYTES) return;
      this.#byName = parseHosts(await readFile(this.#path, "utf8"));
      this.#version = version;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === undefined) throw error;
      this.#byName = new Map();
      this.#version = "";
    }
  }
}
