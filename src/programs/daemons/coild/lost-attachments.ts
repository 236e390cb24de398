import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import type { Attachment, LostAttachment } from "#features/ipam";
import type { PodNote, PodNotes } from "./pod-notes.ts";

/** A log line names at most this many attachments. */
const MAX_NAMED = 10;

/** Reports attachments that are cut off: in the log, in the health part, and by an event on each pod. */
export class LostAttachments {
  readonly #health: HealthPart;
  readonly #log: Logger;
  readonly #notes: Pick<PodNotes, "add">;

  constructor(deps: { readonly health: HealthPart; readonly log: Logger; readonly notes: Pick<PodNotes, "add"> }) {
    this.#health = deps.health;
    this.#log = deps.log;
    this.#notes = deps.notes;
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

  #note(
    attachments: readonly Attachment[],
    addressesOf: (attachment: Attachment) => readonly string[],
    note: PodNote,
  ): void {
    this.#notes.add(
      attachments.flatMap((one) => addressesOf(one)),
      note,
    );
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
