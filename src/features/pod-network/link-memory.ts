import type { IpAddress } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import type { AttachedPod } from "./listing.ts";
import type { Attachment, Parts } from "./parts.ts";
import type { NodeAddresses } from "./plan.ts";
import { PodNamespaces } from "./pod-namespaces.ts";
import { remakeLink } from "./remake.ts";

/** The result of {@link PodNetwork.remake}. */
export interface Remade {
  readonly made: readonly Attachment[];
  /** Attachments whose links could not be made; the next call tries again. */
  readonly waiting: readonly Attachment[];
  readonly failures: readonly unknown[];
}

/** Remembers the links of attachments, those of earlier processes too, and makes again those that another program removed. */
export class LinkMemory {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /**
   * Creates links again that another program has removed, if the pod's namespace still exists. `isWanted` says which attachments still
   * have their addresses. Call it before a survey. A link that cannot be made is tried again by the next call; its attachment is `waiting`
   * and keeps its addresses meanwhile.
   */
  remake(
    isWanted: (attachment: Attachment) => boolean,
    { node, isHeld }: { readonly node: NodeAddresses; readonly isHeld: boolean },
  ): Remade {
    const remade = { made: [] as Attachment[], waiting: [] as Attachment[], failures: [] as unknown[] };
    for (const [ifindex, lost] of this.#parts.known.missing(this.#parts.host.links.list())) {
      try {
        const parts = {
          kernel: this.#parts.kernel,
          host: this.#parts.host,
          own: this.#parts.own,
          guard: this.#parts.guard,
          isHeld,
        };
        const make = (): Link | undefined =>
          isWanted(lost.attachment) ? remakeLink(parts, lost, node, this.#parts.options) : undefined;
        const done = this.#parts.recorded("attachment-repairs", lost.hostName, make);
        if (done === undefined) {
          remade.waiting.push(lost.attachment);
          continue;
        }
        const link = done.value;
        this.#parts.known.delete(ifindex);
        if (link === undefined) continue;
        this.#parts.known.set(link.index, lost);
        remade.made.push(lost.attachment);
      } catch (error) {
        remade.failures.push(error);
        remade.waiting.push(lost.attachment);
      }
    }
    return remade;
  }

  /** Learns the attachments of a survey that this process did not make: their namespaces are looked up once. */
  learn(attached: readonly AttachedPod[]): void {
    const unknown = attached.filter(
      ({ ifindex }) => !this.#parts.known.has(ifindex) && !this.#parts.known.isLeaving(ifindex),
    );
    if (unknown.length === 0) return;
    const links = new Map(this.#parts.host.links.list().map((link) => [link.index, link] as const));
    const namespaces = new PodNamespaces(this.#parts.kernel, this.#parts.host);
    for (const { ifindex, containerId, ifname, pool, hostName, addresses } of unknown) {
      const link = links.get(ifindex);
      if (link === undefined) continue;
      const ofFamily = (family: 4 | 6): IpAddress | undefined => addresses.find((one) => one.family === family);
      const read = this.readPod(link, () => ({ end: namespaces.endOf(link) }));
      // The next survey tries again.
      if (read === undefined) continue;
      const { end } = read;
      this.#parts.known.learn(ifindex, {
        attachment: { containerId, ifname },
        pool,
        hostName,
        group: link.group,
        mtuBytes: link.mtu,
        ipv4: ofFamily(4),
        ipv6: ofFamily(6),
        extra: undefined,
        mac: end?.mac,
        netns: end,
      });
    }
  }

  /**
   * Reads what a pod may have changed, in its namespace. `undefined`: it cannot be read now, or its link is set aside. One pod that cannot be read must not keep the others
   * from being surveyed.
   */
  readPod<T>({ name }: Link, read: () => T): T | undefined {
    try {
      return this.#parts.recorded("attachment-reads", name, read)?.value;
    } catch (error) {
      if (!isKernelError(error)) throw error;
      if (!this.#parts.complained.has("pod")) {
        this.#parts.complained.add("pod");
        this.#parts.log.warn("the namespace of a pod cannot be read: its link is not made again when it is removed", {
          link: name,
          error: error.message,
        });
      }
      return undefined;
    }
  }
}
