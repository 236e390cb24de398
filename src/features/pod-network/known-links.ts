import type { Cidr, IpAddress, MacAddress } from "#base/ip";
import type { Link } from "#kernel/link";
import type { MonitorEvent } from "#kernel/monitor";
import { isHardware } from "./host.ts";
import type { PodNetworkOptions, PodRequest } from "./plan.ts";

/** A finished attachment, with all data that is needed to create its link again. */
export interface KnownLink {
  readonly attachment: PodRequest["attachment"];
  readonly pool: string;
  readonly hostName: string;
  readonly group: number;
  readonly mtuBytes: number | undefined;
  readonly ipv4: IpAddress | undefined;
  readonly ipv6: IpAddress | undefined;
  /** Sources that the pod may use besides its addresses. `undefined`: not known yet. */
  readonly extra: readonly Cidr[] | undefined;
  /** The address of the pod's interface, so that one that is made again has it too. */
  readonly mac: MacAddress | undefined;
  /** `undefined`: the namespace has no path that outlives its processes, so the link cannot be made again. */
  readonly netns: { readonly path: string; readonly inode: bigint } | undefined;
}

/**
 * The links of finished attachments, so that a removal by another program can be distinguished from the work of this process: a set-up or
 * tear-down removes its link from this set before it begins. Holds at most one entry for each link of the node.
 */
export class KnownLinks {
  readonly #options: Pick<PodNetworkOptions, "tableId" | "rulePriority" | "protocolId">;
  readonly #links = new Map<number, KnownLink>();
  /** Links that this process deletes: until the kernel no longer lists them, a survey must not learn them again. */
  readonly #leaving = new Set<number>();
  /** Links that another process has made: their addresses may not be known as a whole. */
  readonly #learned = new Set<number>();
  /** Links that were seen down: a link that is set up again needs its routes. */
  readonly #down = new Set<number>();
  /** Links that this process has made since the last survey, and whose own events, down and then up, have not been read yet. */
  readonly #fresh = new Set<number>();
  /** Devices of the machine that were seen. */
  readonly #hardware = new Set<number>();

  constructor(options: Pick<PodNetworkOptions, "tableId" | "rulePriority" | "protocolId">) {
    this.#options = options;
  }

  has(ifindex: number): boolean {
    return this.#links.has(ifindex);
  }

  /** Stores a link that this process has made and set up. Call it before the kernel's events of that are read. */
  set(ifindex: number, link: KnownLink): void {
    this.#links.set(ifindex, link);
    this.#fresh.add(ifindex);
  }

  /** Stores a link that an earlier process, or Coil, has made. */
  learn(ifindex: number, link: KnownLink): void {
    this.#links.set(ifindex, link);
    this.#learned.add(ifindex);
  }

  /** Returns true if the pod may have IPv6: false for links that this process has made without an IPv6 address. */
  mayHaveIpv6(ifindex: number): boolean {
    const known = this.#links.get(ifindex);
    return known === undefined || known.ipv6 !== undefined || this.#learned.has(ifindex);
  }

  /** The addresses of a link, and its other known addresses; stores the given addresses. At most one of each family is learned. */
  addressesOf({
    ifindex,
    addresses,
  }: {
    readonly ifindex: number;
    readonly addresses: readonly IpAddress[];
  }): readonly IpAddress[] {
    const known = this.#links.get(ifindex);
    if (known === undefined) return addresses;
    const ofFamily = (family: 4 | 6): IpAddress | undefined => addresses.find((one) => one.family === family);
    const [ipv4, ipv6] = [known.ipv4 ?? ofFamily(4), known.ipv6 ?? ofFamily(6)];
    this.#links.set(ifindex, { ...known, ipv4, ipv6 });
    const more = [ipv4, ipv6].filter((one) => one !== undefined && !addresses.some((other) => other.equals(one)));
    return [...addresses, ...more.filter((one) => one !== undefined)].sort((a, b) => a.compare(b));
  }

  extraOf(ifindex: number): readonly Cidr[] | undefined {
    return this.#links.get(ifindex)?.extra;
  }

  /** Stores what the links of an attachment may use besides its addresses. Returns the links. */
  setExtra({ containerId, ifname }: KnownLink["attachment"], extra: readonly Cidr[]): KnownLink[] {
    return [...this.#links].flatMap(([ifindex, link]) => {
      if (link.attachment.containerId !== containerId || link.attachment.ifname !== ifname) return [];
      this.#links.set(ifindex, { ...link, extra });
      return [link];
    });
  }

  setGroup(ifindex: number, group: number): void {
    const known = this.#links.get(ifindex);
    if (known !== undefined) this.#links.set(ifindex, { ...known, group });
  }

  /** Call this before this process deletes the link, and {@link KnownLinks.left} when the deletion has ended. */
  leave(ifindex: number): void {
    this.delete(ifindex);
    this.#leaving.add(ifindex);
  }

  left(ifindex: number): void {
    this.#leaving.delete(ifindex);
  }

  isLeaving(ifindex: number): boolean {
    return this.#leaving.has(ifindex);
  }

  /** Call this when the link was deleted and is not created again. */
  delete(ifindex: number): void {
    this.#links.delete(ifindex);
    this.#learned.delete(ifindex);
    this.#down.delete(ifindex);
    this.#fresh.delete(ifindex);
  }

  /** Call this at each survey: after it, a link that goes down and up again has lost its routes, whoever has made it. */
  surveyed(): void {
    this.#fresh.clear();
  }

  /** The known links that are not among the links of the host. */
  missing(links: readonly Link[]): [number, KnownLink][] {
    const present = new Set(links.map(({ index }) => index));
    return [...this.#links].filter(([ifindex]) => !present.has(ifindex));
  }

  /** True if after this event an object that attachments need may be missing, and this process did not remove it; also for a device that is new here. */
  isLoss(event: MonitorEvent): boolean {
    const { tableId, rulePriority, protocolId } = this.#options;
    if (event.kind === "resync") return true;
    if (event.kind === "link") return this.#isLinkLoss(event.op, event.link);
    if (event.kind === "forwarding") return this.#isForwardingLoss(event);
    if (event.op !== "delete") return false;
    if (event.kind === "rule") return event.rule.priority === rulePriority && event.rule.table === tableId;
    if (event.kind === "address") return this.#links.has(event.address.linkIndex);
    const { table, protocol, linkIndex } = event.route;
    return table === tableId && protocol === protocolId && linkIndex !== undefined && this.#links.has(linkIndex);
  }

  /** IPv6 forwards by the value for all links alone. */
  #isForwardingLoss({ family, linkIndex, isOn }: Extract<MonitorEvent, { kind: "forwarding" }>): boolean {
    return !isOn && (linkIndex === undefined || (family === 4 && this.#links.has(linkIndex)));
  }

  /** A device that comes later lacks its settings. */
  #isNewHardware(op: "new" | "delete", index: number): boolean {
    if (op === "delete") {
      this.#hardware.delete(index);
      return false;
    }
    const isNew = !this.#hardware.has(index);
    this.#hardware.add(index);
    return isNew;
  }

  #isLinkLoss(op: "new" | "delete", link: Link): boolean {
    const { index, up } = link;
    if (!this.#links.has(index)) return isHardware(link) && this.#isNewHardware(op, index);
    if (op === "delete") return true;
    if (!up) this.#down.add(index);
    if (!up) return false;
    const wasDown = this.#down.delete(index);
    return !this.#fresh.delete(index) && wasDown;
  }
}
