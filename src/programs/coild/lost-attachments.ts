import { Dirty } from "#base/async";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { reconcile } from "#base/reconcile";
import type { Attachment, LostAttachment } from "#features/ipam";
import { type KubeApi, resources } from "#kube/client";
import { type EventRecorder, regarding } from "#kube/events";

/** A log line names at most this many attachments. */
const MAX_NAMED = 10;
const RESYNC_MS = 3_600_000;

/**
 * Reports attachments that are cut off: in the log, in the health part, and by an event on each pod. Pods are found by their addresses,
 * because the kernel has only container ids. Holds at most one note for each attachment of the node.
 */
export class LostAttachments {
  readonly #health: HealthPart;
  readonly #log: Logger;
  readonly #dirty = new Dirty();
  /** Address → the event for its pod. */
  readonly #notes = new Map<string, { readonly reason: string; readonly note: string }>();

  constructor(deps: { readonly health: HealthPart; readonly log: Logger }) {
    this.#health = deps.health;
    this.#log = deps.log;
  }

  /** Applies the lost attachments, and the changes that were just made to their links. */
  report(
    lost: readonly LostAttachment[],
    done: {
      readonly cut: readonly Attachment[];
      readonly joined: readonly Attachment[];
      readonly kept: readonly Attachment[];
    },
    addressesOf: (attachment: Attachment) => readonly string[],
  ): void {
    if (lost.length === 0 && done.kept.length === 0) this.#health.ok();
    else if (lost.length === 0) {
      const count = done.kept.length;
      this.#health.degraded(
        `${count} attachments stay cut off, because coild cannot read whether their blocks belong to this node again`,
      );
    } else {
      const blocks = [...new Set(lost.map(({ block }) => block ?? "unknown"))].slice(0, MAX_NAMED);
      this.#health.degraded(
        `${lost.length} attachments are cut off, because their blocks do not belong to this node any more (blocks: ${blocks.join(", ")}); delete their pods`,
      );
    }
    if (done.cut.length > 0) {
      this.#log.error("attachments were cut off: their blocks were deleted or belong to another node", named(done.cut));
      this.#note(done.cut, addressesOf, {
        reason: "AddressLost",
        note: "The address block of this pod's address does not belong to its node any more, so the pod is cut off from the network. Delete the pod.",
      });
    }
    if (done.joined.length > 0) {
      this.#log.info("attachments were connected again: their blocks belong to this node", named(done.joined));
      this.#note(done.joined, addressesOf, {
        reason: "AddressRestored",
        note: "The address block of this pod's address belongs to its node again, and the pod is connected to the network again.",
      });
    }
  }

  /** Writes the events, until the signal aborts. */
  async recordEvents(
    parts: {
      readonly api: KubeApi;
      readonly events: EventRecorder;
      readonly nodeName: string;
      readonly health: HealthPart;
    },
    options: { readonly signal: AbortSignal },
  ): Promise<void> {
    const { api, events, nodeName, health } = parts;
    health.ok();
    await reconcile({
      dirty: this.#dirty,
      health,
      signal: options.signal,
      resyncMs: RESYNC_MS,
      sync: async ({ signal }) => {
        if (this.#notes.size === 0) return 0;
        const notes = new Map(this.#notes);
        const { items } = await api.listAll(resources.pods, { fieldSelector: `spec.nodeName=${nodeName}`, signal });
        let recorded = 0;
        for (const pod of items) {
          const found = (pod.status?.podIPs ?? []).flatMap(({ ip }) => notes.get(ip ?? "") ?? [])[0];
          if (found === undefined || pod.spec?.hostNetwork === true) continue;
          events.record({ regarding: regarding(resources.pods, pod), type: "Warning", ...found });
          recorded += 1;
        }
        // Deleted pods get no event.
        for (const [address, note] of notes) if (this.#notes.get(address) === note) this.#notes.delete(address);
        return recorded;
      },
    });
  }

  #note(
    attachments: readonly Attachment[],
    addressesOf: (attachment: Attachment) => readonly string[],
    note: { readonly reason: string; readonly note: string },
  ): void {
    for (const address of attachments.flatMap((one) => addressesOf(one))) this.#notes.set(address, note);
    this.#dirty.mark();
  }
}

function named(attachments: readonly Attachment[]): {
  readonly count: number;
  readonly containerIDs: readonly string[];
} {
  return {
    count: attachments.length,
    containerIDs: attachments.slice(0, MAX_NAMED).map(({ containerId }) => containerId),
  };
}
