import type { Link, LinkPort } from "#kernel/link";
import type { NetStack } from "#kernel/net";
import { parseAlias } from "./alias.ts";
import { PodNetworkError } from "./errors.ts";
import { isOurMake } from "./listing.ts";
import { calicoName, hostNameOf, type PodNetworkOptions, type PodRequest } from "./plan.ts";

/** The number of names that a host link can have: the names of two attachments are equal with a probability of one in 2^32. */
const MAX_NAME_ATTEMPTS = 4;

type Attachment = PodRequest["attachment"];

/**
 * Finds the host links of an attachment by the few names that they can have. All links are dumped only for attachments whose links have
 * other names, because a dump of many links takes long.
 */
export class AttachmentLinks {
  readonly #links: Pick<LinkPort, "get" | "list">;
  readonly #compatCalico: boolean;
  /** Attachments whose links have other names than ours, because other programs made them. Bounded by the links of the node. */
  #oddlyNamed: ReadonlySet<string> = new Set();

  constructor(links: Pick<LinkPort, "get" | "list">, options: Pick<PodNetworkOptions, "compatCalico">) {
    this.#links = links;
    this.#compatCalico = options.compatCalico;
  }

  /** Remembers which of all attachments have to be searched for. */
  noteNames(attached: Iterable<Attachment & { readonly hostName: string }>): void {
    const odd = [...attached].filter((one) => !namesOf(one).includes(one.hostName));
    this.#oddlyNamed = new Set(odd.map(keyOf));
  }

  /** All links of an attachment. */
  find(attachment: Attachment): Link[] {
    const named = this.#named(attachment);
    return named.length > 0 && !this.#oddlyNamed.has(keyOf(attachment)) ? named : this.#search(attachment);
  }

  /** The links that a set-up replaces: those of the attachment, and the link that has the pod's name, unless it is of another of its interfaces. */
  earlierOf({ attachment, pod }: PodRequest): Link[] {
    if (!this.#compatCalico) {
      return this.#oddlyNamed.has(keyOf(attachment)) ? this.#search(attachment) : this.#named(attachment);
    }
    const calico = this.#links.get({ name: calicoName(pod) });
    const others = this.#search(attachment).filter((link) => link.index !== calico?.index);
    return calico === undefined || isOfOtherInterface(calico, attachment) ? others : [calico, ...others];
  }

  /**
   * Chooses the name of a new link; a pod's further interface does not get Calico's name, which the first has. Throws {@link PodNetworkError} when all possible
   * names are taken.
   */
  freeName({ attachment, pod }: PodRequest): string {
    const names = [...(this.#compatCalico ? [calicoName(pod)] : []), ...namesOf(attachment)];
    const free = names.find((name) => this.#links.get({ name }) === undefined);
    if (free !== undefined) return free;
    const message = `no host link name is free for container ${attachment.containerId}`;
    throw new PodNetworkError("interface-exists", message);
  }

  #named(attachment: Attachment): Link[] {
    return namesOf(attachment)
      .flatMap((name) => this.#links.get({ name }) ?? [])
      .filter((link) => isOf(link, attachment));
  }

  #search(attachment: Attachment): Link[] {
    const names = namesOf(attachment);
    return this.#links.list().filter((link) => {
      return isMarked(link, attachment) || (names.includes(link.name) && isOf(link, attachment));
    });
  }
}

/** An interface of that name in the pod is replaced when it is one of `earlier`; throws {@link PodNetworkError} when it is not. */
export function refuseForeign(pod: NetStack, ifname: string, earlier: readonly Link[]): void {
  const existing = pod.links.get({ name: ifname });
  if (existing === undefined) return;
  const isOurs = earlier.some((link) => link.index === existing.peerIndex && link.peerIndex === existing.index);
  if (existing.kind === "veth" && isOurs) return;
  throw new PodNetworkError(
    "interface-exists",
    `the pod already has an interface ${ifname}, which was made by another program or for another attachment`,
  );
}

function keyOf({ containerId, ifname }: Attachment): string {
  return `${containerId}/${ifname}`;
}

/** The names that a host link of an attachment can have. */
function namesOf(attachment: Attachment): string[] {
  return Array.from({ length: MAX_NAME_ATTEMPTS }, (_, attempt) => hostNameOf(attachment, attempt));
}

/** Returns true if a link bears the alias of another interface of its pod, in whichever sandbox. */
function isOfOtherInterface(link: Link, { ifname }: Attachment): boolean {
  const alias = parseAlias(link.alias ?? "");
  return alias !== undefined && alias.ifname !== ifname;
}

function isMarked(link: Link, { containerId, ifname }: Attachment): boolean {
  const alias = parseAlias(link.alias ?? "");
  if (alias === undefined || alias.kind === "adopted") return false;
  return alias.containerId === containerId && alias.ifname === ifname;
}

/** Returns true if a link with one of the attachment's names belongs to it, also if its alias was removed or changed. */
function isOf(link: Link, attachment: Attachment): boolean {
  return isMarked(link, attachment) || (parseAlias(link.alias ?? "") === undefined && isOurMake(link));
}
