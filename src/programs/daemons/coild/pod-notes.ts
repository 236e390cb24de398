import { Dirty } from "#base/async";
import type { HealthPart } from "#base/health";
import type { IpAddress } from "#base/ip";
import { reconcile } from "#base/reconcile";
import type { PodIdentity } from "#features/cni";
import { type KubeApi, resources } from "#kube/client";
import { type EventRecorder, type Regarding, regarding } from "#kube/events";
import { podsByAddress } from "./pods-by-address.ts";

const RESYNC_MS = 3_600_000;

/** Reason and text of an event. */
export interface PodNote {
  readonly reason: string;
  readonly note: string;
}

/**
 * Events of pods that are known by an address alone, because the kernel has only container ids. Holds at most one note for each reason and address of the
 * node's attachments.
 */
export class PodNotes {
  readonly #dirty = new Dirty();
  /** Address and reason → address and note. */
  readonly #notes = new Map<string, PodNote & { readonly address: string }>();

  /** Pods whose links this process has made, by their addresses: the API may not have their addresses yet. */
  readonly #pods = new Map<string, PodIdentity>();

  /** Says whose addresses these are, from the ADD of a pod on. */
  know(addresses: readonly IpAddress[], pod: PodIdentity): void {
    for (const address of addresses) this.#pods.set(String(address), pod);
  }

  /** Call it at the end of an attachment. */
  forget(addresses: readonly IpAddress[]): void {
    for (const address of addresses) this.#pods.delete(String(address));
  }

  /** Takes a note for the pods with these addresses. It replaces an earlier one with the same reason that was not recorded yet. */
  add(addresses: readonly (IpAddress | string)[], note: PodNote): void {
    for (const address of addresses.map(String)) this.#notes.set(`${address} ${note.reason}`, { ...note, address });
    this.#dirty.mark("note");
  }

  /** Records the events, until the signal aborts. Pods that have ended or are deleted meanwhile get none, and neither do pods that share an address. */
  async run(
    parts: {
      readonly api: Pick<KubeApi, "listAll">;
      readonly events: Pick<EventRecorder, "record">;
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
        const known = this.#recordKnown(events);
        const notes = new Map(this.#notes);
        if (notes.size === 0) return known;
        const { items } = await api.listAll(resources.pods, { fieldSelector: `spec.nodeName=${nodeName}`, signal });
        let recorded = known;
        const byAddress = podsByAddress(items, nodeName);
        const done = new Set<string>();
        for (const { address, reason, note } of notes.values()) {
          const pod = byAddress.get(address);
          if (pod === undefined || done.has(`${pod.metadata.uid} ${reason}`)) continue;
          done.add(`${pod.metadata.uid} ${reason}`);
          events.record({ regarding: regarding(resources.pods, pod), type: "Warning", reason, note });
          recorded += 1;
        }
        for (const [key, note] of notes) if (this.#notes.get(key) === note) this.#notes.delete(key);
        return recorded;
      },
    });
  }

  /** Records the notes of pods whose links this process has made. Returns their number. */
  #recordKnown(events: Pick<EventRecorder, "record">): number {
    const done = new Set<string>();
    for (const [key, { address, reason, note }] of this.#notes) {
      const pod = this.#pods.get(address);
      if (pod === undefined) continue;
      this.#notes.delete(key);
      if (done.has(`${pod.uid} ${reason}`)) continue;
      done.add(`${pod.uid} ${reason}`);
      events.record({ regarding: podOf(pod), type: "Warning", reason, note });
    }
    return done.size;
  }
}

/** The reference of an event to a pod that is known by its names. */
export function podOf({ namespace, name, uid }: PodIdentity): Regarding {
  return { apiVersion: "v1", kind: "Pod", namespace, name, uid };
}
