import type { IpFamily } from "#base/ip";
import type { OffloadPort } from "#kernel/ethtool";
import type { FouPort, FouPortEntry } from "#kernel/fou";
import type { NetnsIdPort } from "#kernel/link";
import {
  checkNeighbour,
  describeNeighbour,
  type Neighbour,
  type NeighbourFilter,
  type NeighbourKey,
  type NeighbourPort,
  type NeighbourSpec,
} from "#kernel/neighbour";
import type { NetNs } from "#kernel/netns";
import type { FakeContext } from "./context.ts";
import { refuse } from "./faults.ts";
import { vxlanPortOf } from "./links.ts";
import type { FakeLink, FakeNamespace } from "./namespace.ts";

/** The neighbours of a fake namespace. */
export class FakeNeighbourPort implements NeighbourPort {
  readonly #context: FakeContext;
  readonly #ns: FakeNamespace;

  constructor(context: FakeContext, ns: FakeNamespace) {
    this.#context = context;
    this.#ns = ns;
  }

  list({ linkIndex, family, proxy = false }: NeighbourFilter = {}): Neighbour[] {
    this.#context.faults.check("neighbours.list", "list neighbours");
    return this.#ns.neighbours.filter(
      (one) =>
        one.proxy === proxy &&
        (linkIndex === undefined || one.linkIndex === linkIndex) &&
        (family === undefined || one.address.family === family),
    );
  }

  replace(spec: NeighbourSpec): void {
    checkNeighbour(spec);
    const what = describeNeighbour("replace", spec);
    this.#context.faults.check("neighbours.replace", what);
    if (!this.#ns.links.has(spec.linkIndex)) throw refuse("ENODEV", what);
    const { linkIndex, address, mac, proxy = false } = spec;
    const entry: Neighbour = {
      linkIndex,
      address,
      ...(mac === undefined ? {} : { mac }),
      state: proxy ? "none" : (spec.state ?? "permanent"),
      proxy,
    };
    this.#ns.neighbours = [...this.#ns.neighbours.filter((one) => !isSame(one, spec)), entry];
  }

  delete(key: NeighbourKey): void {
    const what = describeNeighbour("delete", key);
    this.#context.faults.check("neighbours.delete", what);
    if (!this.#ns.links.has(key.linkIndex)) throw refuse("ENODEV", what);
    const left = this.#ns.neighbours.filter((one) => !isSame(one, key));
    if (left.length === this.#ns.neighbours.length) throw refuse("ENOENT", what);
    this.#ns.neighbours = left;
  }
}

function isSame(one: Neighbour, key: NeighbourKey): boolean {
  return one.linkIndex === key.linkIndex && one.address.equals(key.address) && one.proxy === (key.proxy ?? false);
}

/** The FOU ports of a fake namespace. */
export class FakeFouPort implements FouPort {
  readonly #context: FakeContext;
  readonly #ns: FakeNamespace;

  constructor(context: FakeContext, ns: FakeNamespace) {
    this.#context = context;
    this.#ns = ns;
  }

  available(): boolean {
    return !this.#context.lacks.has("fou");
  }

  list(family: IpFamily): FouPortEntry[] {
    this.#begin("list", "list FOU ports");
    return this.#ns.fouPorts.filter((entry) => entry.family === family);
  }

  add(entry: FouPortEntry): void {
    const what = `add IPv${entry.family} FOU port ${entry.port}`;
    this.#begin("add", what);
    const isOfVxlan = [...this.#ns.links.values()].some((link) => {
      const taken = link.up ? vxlanPortOf(link) : undefined;
      return taken?.port === entry.port && taken.families.includes(entry.family);
    });
    if (isOfVxlan || this.#find(entry) !== undefined) throw refuse("EADDRINUSE", what);
    this.#ns.fouPorts.push(entry);
  }

  delete(entry: Pick<FouPortEntry, "family" | "port">): void {
    const what = `delete IPv${entry.family} FOU port ${entry.port}`;
    this.#begin("delete", what);
    const found = this.#find(entry);
    if (found === undefined) throw refuse("EINVAL", what);
    this.#ns.fouPorts = this.#ns.fouPorts.filter((one) => one !== found);
  }

  #find(entry: Pick<FouPortEntry, "family" | "port">): FouPortEntry | undefined {
    return this.#ns.fouPorts.find((one) => one.family === entry.family && one.port === entry.port);
  }

  #begin(verb: string, what: string): void {
    this.#context.faults.check(`fou.${verb}`, what);
    if (!this.available()) throw refuse("EOPNOTSUPP", what, "this kernel has no fou module");
  }
}

/** The features that are on for every device of the fake. */
const FEATURES = ["rx-checksum", "tx-checksum-ip-generic", "tx-generic-segmentation", "tx-tcp-segmentation"];

/** The offloads of links of a fake namespace. */
export class FakeOffloadPort implements OffloadPort {
  readonly #context: FakeContext;
  readonly #ns: FakeNamespace;

  constructor(context: FakeContext, ns: FakeNamespace) {
    this.#context = context;
    this.#ns = ns;
  }

  active(linkIndex: number): string[] {
    const link = this.#begin("active", `read the offloads of link ${linkIndex}`, linkIndex);
    return FEATURES.filter((feature) => !link.disabled.has(feature));
  }

  disable(linkIndex: number, features: readonly string[]): void {
    const link = this.#begin("disable", `turn offloads of link ${linkIndex} off`, linkIndex);
    for (const feature of features) if (FEATURES.includes(feature)) link.disabled.add(feature);
  }

  #begin(verb: string, what: string, linkIndex: number): FakeLink {
    this.#context.faults.check(`offloads.${verb}`, what);
    const link = this.#ns.links.get(linkIndex);
    if (link === undefined) throw refuse("ENODEV", what);
    return link;
  }
}

/** The namespace ids of a fake namespace. */
export class FakeNetnsIdPort implements NetnsIdPort {
  readonly #context: FakeContext;
  readonly #ns: FakeNamespace;

  constructor(context: FakeContext, ns: FakeNamespace) {
    this.#context = context;
    this.#ns = ns;
  }

  get(ns: NetNs): number | undefined {
    this.#context.faults.check("netnsIds.get", `get the id of network namespace ${ns.path ?? ns.inode}`);
    return this.#ns.ids.get(this.#context.resolve(ns));
  }

  set(ns: NetNs, id: number): void {
    const what = `give network namespace ${ns.path ?? ns.inode} id ${id}`;
    this.#context.faults.check("netnsIds.set", what);
    const other = this.#context.resolve(ns);
    if (this.#ns.ids.has(other)) throw refuse("EEXIST", what, "Peer netns already has a nsid assigned");
    if (id < 0) this.#ns.idOf(other);
    else if ([...this.#ns.ids.values()].includes(id))
      throw refuse("EEXIST", what, "The specified nsid is already used");
    else this.#ns.ids.set(other, id);
  }
}
