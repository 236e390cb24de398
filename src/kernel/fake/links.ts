import type { AbortOptions } from "#base/async";
import { type IpFamily, MacAddress } from "#base/ip";
import { isKernelError, type KernelError } from "#kernel/errors";
import {
  checkAlias,
  checkGroup,
  checkLinkName,
  type DeletableLink,
  type Link,
  type LinkChange,
  type LinkDetails,
  type LinkPort,
  type LinkRef,
  type LinkSpec,
  MAX_DELETE_MANY,
} from "#kernel/link";
import { bringDown, bringUp } from "./addressing.ts";
import type { FakeContext } from "./context.ts";
import { refuse } from "./faults.ts";
import type { FakeLink, FakeNamespace } from "./namespace.ts";

/** Smallest MTU of ethernet-like devices, and largest MTU of any device. */
const MTU_RANGE = { min: 68, max: 65535 } as const;

/** The links of a fake namespace. */
export class FakeLinkPort implements LinkPort {
  readonly #context: FakeContext;
  readonly #ns: FakeNamespace;

  constructor(context: FakeContext, ns: FakeNamespace) {
    this.#context = context;
    this.#ns = ns;
  }

  list(): Link[] {
    this.#context.faults.check("links.list", "list links");
    return [...this.#ns.links.values()].map((link) => this.#ns.view(link)).sort((a, b) => a.index - b.index);
  }

  get(ref: LinkRef): Link | undefined {
    if ("name" in ref) checkLinkName(ref.name);
    this.#context.faults.check("links.get", `get link ${"name" in ref ? ref.name : ref.index}`);
    const link = "name" in ref ? this.#ns.linkNamed(ref.name) : this.#ns.links.get(ref.index);
    return link === undefined ? undefined : this.#ns.view(link);
  }

  create(spec: LinkSpec): Link {
    const what = `create ${spec.kind} link ${spec.name}`;
    checkLinkName(spec.name);
    if (spec.alias !== undefined) checkAlias(spec.alias);
    if (spec.kind === "veth") checkLinkName(spec.peer.name);
    if (spec.kind === "tun" && spec.netns !== undefined)
      throw refuse("EINVAL", what, "a tun link in another namespace");
    this.#context.faults.check("links.create", what);
    if (this.#context.lacks.has(spec.kind)) throw refuse("EOPNOTSUPP", what, "Unknown device type");
    if (!this.#carries(spec)) throw refuse("EINVAL", what);
    const home = spec.netns === undefined ? this.#ns : this.#context.resolve(spec.netns);
    const link = this.#make(home, spec, what);
    try {
      if (spec.masterIndex !== undefined) setMaster(home, link, spec.masterIndex, what);
      if (spec.alias !== undefined) link.alias = spec.alias;
      if (spec.up === true) raise(home, link, what);
      if (spec.kind === "veth" && spec.peer.up === true && link.peer !== undefined) bringUp(link.peer.home, link.peer);
    } catch (error) {
      removeLink(link);
      throw error;
    }
    return home.view(link);
  }

  /** The kernel does not know an encapsulation whose module is not loaded. */
  #carries(spec: LinkSpec): boolean {
    if ((spec.kind !== "ipip" && spec.kind !== "ip6tnl") || spec.encap === undefined) return true;
    return !this.#context.lacks.has(spec.kind === "ipip" ? "fou" : "fou6");
  }

  #make(home: FakeNamespace, spec: LinkSpec, what: string): FakeLink {
    if (home.linkNamed(spec.name) !== undefined) throw refuse("EEXIST", what);
    checkMtu(spec.mtu, what);
    if (spec.kind === "vxlan" && [...home.links.values()].some(({ details }) => isSameVxlan(spec, details)))
      throw refuse("EEXIST", what);
    if (
      isExternalTunnel(spec) &&
      [...home.links.values()].some(({ details }) => details?.kind === spec.kind && isExternalTunnel(details))
    )
      throw refuse("EEXIST", what);
    const lower = spec.kind === "macvlan" ? this.#ns.links.get(spec.parentIndex) : undefined;
    if (spec.kind === "macvlan" && lower === undefined) throw refuse("ENODEV", what);
    const link = this.#add(home, { ...spec, details: detailsOf(spec), peer: lower });
    if (spec.kind !== "veth") return link;
    const far = spec.peer.netns === undefined ? home : this.#context.resolve(spec.peer.netns);
    if (far.linkNamed(spec.peer.name) !== undefined) {
      home.links.delete(link.index);
      throw refuse("EEXIST", what);
    }
    checkMtu(spec.peer.mtu, what);
    link.peer = this.#add(far, { ...spec.peer, kind: "veth", details: undefined, peer: link });
    return link;
  }

  #add(home: FakeNamespace, init: NewLink): FakeLink {
    const link: FakeLink = {
      index: home.takeIndex(),
      name: init.name,
      kind: init.kind,
      mac: init.mac ?? this.#context.nextMac(),
      mtu: init.mtu ?? 1500,
      up: false,
      arp: true,
      alias: "",
      group: 0,
      masterIndex: undefined,
      promiscuous: false,
      disabled: new Set(),
      details: init.details,
      home,
      peer: init.peer,
    };
    home.links.set(link.index, link);
    return link;
  }

  set(index: number, change: LinkChange): void {
    const what = `change link ${index} (${Object.keys(change).join(", ")})`;
    if (change.name !== undefined) checkLinkName(change.name);
    if (change.alias !== undefined) checkAlias(change.alias);
    if (change.group !== undefined) checkGroup(change.group);
    this.#context.faults.check("links.set", what);
    const link = this.#ns.links.get(index);
    if (link === undefined) throw refuse("ENODEV", what);
    checkMtu(change.mtu, what);
    if (change.netns !== undefined) moveLink(link, this.#context.resolve(change.netns), what);
    applyChange(link, change, what);
  }

  delete(index: number): void {
    const what = `delete link ${index}`;
    this.#context.faults.check("links.delete", what);
    const link = this.#ns.links.get(index);
    if (link === undefined) throw refuse("ENODEV", what);
    if (link.kind === undefined) throw refuse("EOPNOTSUPP", what);
    removeLink(link);
  }

  async deleteAsync(index: number, options: AbortOptions = {}): Promise<void> {
    options.signal?.throwIfAborted();
    this.delete(index);
  }

  async deleteMany(
    links: readonly DeletableLink[],
    options: AbortOptions = {},
  ): Promise<ReadonlyMap<number, KernelError>> {
    options.signal?.throwIfAborted();
    const what = `delete ${links.length} links at once`;
    if (links.length > MAX_DELETE_MANY) throw refuse("EINVAL", what, `the maximum is ${MAX_DELETE_MANY}`);
    if (links.length > 1) this.#context.faults.check("links.deleteMany", what);
    const failures = new Map<number, KernelError>();
    const present = new Set(this.#ns.links.keys());
    for (const index of new Set(links.map((link) => link.index))) {
      // The link was removed with another link of this call, for example its veth peer: in the kernel both are members of the group at that
      // time.
      if (present.has(index) && !this.#ns.links.has(index)) continue;
      try {
        this.delete(index);
      } catch (error) {
        if (!isKernelError(error)) throw error;
        failures.set(index, error);
      }
    }
    return failures;
  }
}

interface NewLink {
  readonly name: string;
  readonly kind: string;
  readonly mac?: MacAddress | undefined;
  readonly mtu?: number | undefined;
  readonly details: LinkDetails | undefined;
  readonly peer: FakeLink | undefined;
}

function applyChange(link: FakeLink, change: LinkChange, what: string): void {
  const ns = link.home;
  if (change.name !== undefined && change.name !== link.name) {
    if (ns.linkNamed(change.name) !== undefined) throw refuse("EEXIST", what);
    link.name = change.name;
  }
  if (change.masterIndex !== undefined) setMaster(ns, link, change.masterIndex, what);
  if (change.mtu !== undefined) link.mtu = change.mtu;
  if (change.mac !== undefined) link.mac = change.mac;
  if (change.alias !== undefined) link.alias = change.alias;
  if (change.group !== undefined) link.group = change.group;
  if (change.arp !== undefined) link.arp = change.arp;
  if (change.promiscuous !== undefined) link.promiscuous = change.promiscuous;
  if (change.up === true) raise(ns, link, what);
  if (change.up === false) bringDown(ns, link);
}

function setMaster(ns: FakeNamespace, link: FakeLink, masterIndex: number | null, what: string): void {
  if (masterIndex !== null && ns.links.get(masterIndex)?.kind !== "bridge") {
    throw refuse(ns.links.has(masterIndex) ? "EOPNOTSUPP" : "EINVAL", what);
  }
  link.masterIndex = masterIndex ?? undefined;
}

function moveLink(link: FakeLink, to: FakeNamespace, what: string): void {
  const from = link.home;
  if (link.kind === undefined) throw refuse("EINVAL", what, "The interface netns is immutable");
  if (to === from) return;
  if (to.linkNamed(link.name) !== undefined) throw refuse("EEXIST", what);
  bringDown(from, link);
  forgetLink(from, link);
  if (to.links.has(link.index)) link.index = to.takeIndex();
  link.home = to;
  link.masterIndex = undefined;
  to.links.set(link.index, link);
}

/** Removes a link with all dependent objects: its veth peer, macvlans on it, addresses, routes. */
export function removeLink(link: FakeLink): void {
  const ns = link.home;
  if (ns.links.get(link.index) !== link) return;
  forgetLink(ns, link);
  for (const other of ns.links.values()) if (other.masterIndex === link.index) other.masterIndex = undefined;
  if (link.kind === "veth" && link.peer !== undefined) removeLink(link.peer);
  for (const other of [...ns.links.values()]) if (other.kind === "macvlan" && other.peer === link) removeLink(other);
}

function forgetLink(ns: FakeNamespace, link: FakeLink): void {
  ns.links.delete(link.index);
  ns.dropRoutes(link.index);
  ns.addresses = ns.addresses.filter(({ linkIndex }) => linkIndex !== link.index);
  ns.neighbours = ns.neighbours.filter(({ linkIndex }) => linkIndex !== link.index);
}

function checkMtu(mtu: number | undefined, what: string): void {
  if (mtu === undefined || (mtu >= MTU_RANGE.min && mtu <= MTU_RANGE.max)) return;
  throw refuse(
    "EINVAL",
    what,
    mtu < MTU_RANGE.min ? "mtu less than device minimum" : "mtu greater than device maximum",
  );
}

/** The kernel has one VXLAN link of an identifier, port and family in a namespace, whatever its remote end is. */
function isSameVxlan(spec: Extract<LinkSpec, { readonly kind: "vxlan" }>, actual: FakeLink["details"]): boolean {
  if (actual?.kind !== "vxlan") return false;
  const text = ({ vni, external = false, port = 8472, local, remote }: typeof spec | typeof actual): string =>
    JSON.stringify([external ? 0 : vni, port, (remote ?? local)?.family ?? 4]);
  return text(spec) === text(actual);
}

/** The families in which an up VXLAN link has its UDP port. */
export function vxlanPortOf({
  details,
}: Pick<FakeLink, "details">): { readonly port: number; readonly families: readonly IpFamily[] } | undefined {
  if (details?.kind !== "vxlan") return undefined;
  const { port = 8472, external = false, local, remote } = details;
  return { port, families: external ? [4, 6] : [(remote ?? local)?.family ?? 4] };
}

function raise(ns: FakeNamespace, link: FakeLink, what: string): void {
  const own = vxlanPortOf(link);
  if (own !== undefined && ns.fouPorts.some(({ port, family }) => port === own.port && own.families.includes(family)))
    throw refuse("EADDRINUSE", what);
  bringUp(ns, link);
}

/** The kernel has one ipip and one ip6tnl tunnel in a namespace that takes the packets of any peer. */
function isExternalTunnel(tunnel: { readonly kind: string; readonly external?: boolean | undefined }): boolean {
  return (tunnel.kind === "ipip" || tunnel.kind === "ip6tnl") && tunnel.external === true;
}

/** The options as the kernel lists them: the given ones, with its defaults. */
function detailsOf(spec: LinkSpec): LinkDetails | undefined {
  switch (spec.kind) {
    case "veth":
    case "dummy":
      return undefined;
    case "bridge": {
      const { stp = false, vlanFiltering = false, multicastSnooping = true, ageingSeconds = 300 } = spec;
      return { kind: "bridge", stp, vlanFiltering, multicastSnooping, ageingSeconds };
    }
    case "tun":
      return {
        kind: "tun",
        mode: spec.mode,
        multiQueue: spec.multiQueue ?? false,
        vnetHeader: spec.vnetHeader ?? false,
        ...kept({ ownerUid: spec.ownerUid }),
      };
    case "macvlan":
      return { kind: "macvlan", mode: spec.mode };
    case "vxlan":
      return {
        kind: "vxlan",
        ...kept({ vni: spec.vni, local: spec.local, remote: spec.remote, underlayIndex: spec.underlayIndex }),
        port: spec.port ?? 8472,
        learning: spec.learning ?? true,
        external: spec.external ?? false,
        ttl: spec.ttl ?? 0,
        udpCsum: spec.udpCsum ?? true,
        udp6ZeroCsumTx: spec.udp6ZeroCsumTx ?? false,
        udp6ZeroCsumRx: spec.udp6ZeroCsumRx ?? false,
        gbp: spec.gbp ?? false,
      };
    case "ipip":
    case "ip6tnl":
      return {
        kind: spec.kind,
        ...kept({ local: spec.local, remote: spec.remote, underlayIndex: spec.underlayIndex }),
        ttl: spec.ttl ?? 0,
        ...(spec.kind === "ipip" ? { pmtuDiscovery: spec.pmtuDiscovery ?? true } : {}),
        payload: spec.payload ?? (spec.kind === "ipip" ? "ipv4" : "ipv6"),
        external: spec.external ?? false,
        ...kept({ encap: spec.encap === undefined ? undefined : { csum: false, csum6: false, ...spec.encap } }),
      };
  }
}

function kept<T extends object>(fields: T): Partial<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>;
}

/** Adds the loopback link, which every new namespace has; the link is down. */
export function addLoopback(ns: FakeNamespace): FakeLink {
  const link: FakeLink = {
    index: ns.takeIndex(),
    name: "lo",
    kind: undefined,
    mac: MacAddress.parse("00:00:00:00:00:00"),
    mtu: 65536,
    up: false,
    arp: true,
    alias: "",
    group: 0,
    masterIndex: undefined,
    promiscuous: false,
    disabled: new Set(),
    details: undefined,
    home: ns,
    peer: undefined,
  };
  ns.links.set(link.index, link);
  return link;
}
