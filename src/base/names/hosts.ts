import type { Clock } from "#base/clock";
import { IpAddress } from "#base/ip";
import { FileView } from "./file-view.ts";

/** Parses hosts(5): names in lower case, with their addresses in the file's order. Ignores invalid lines, as resolvers do. */
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

/** The hosts file of the system, which is read again when it changes. */
export class HostsFile {
  readonly #view: FileView<ReadonlyMap<string, readonly IpAddress[]>>;

  constructor(path: string, clock: Clock) {
    this.#view = new FileView(path, { clock, parse: parseHosts, absent: new Map() });
  }

  /** The addresses of a name in lower case; empty if the file does not have it or cannot be read. */
  async lookup(name: string): Promise<readonly IpAddress[]> {
    return (await this.#view.get()).get(name) ?? [];
  }
}
