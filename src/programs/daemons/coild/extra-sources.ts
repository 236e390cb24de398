import { type AbortOptions, Backoff, retry } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import type { Cidr } from "#base/ip";
import { type Logger, Repeats } from "#base/log";
import type { FoundPod, PodIdentity } from "#features/cni";
import type { PodNetwork } from "#features/pod-network";
import { ALLOWED_SOURCES, allowedSources, EXTRA_SOURCES } from "#features/source-guard";
import { type KubeApi, type Namespace, resources } from "#kube/client";
import type { EventRecorder } from "#kube/events";
import { podOf } from "./pod-notes.ts";
import { podsByAddress } from "./pods-by-address.ts";

/** Reason of the event of a pod whose extra sources are refused. */
export const EXTRA_SOURCES_REFUSED = "ExtraSourcesRefused";
/** An event names at most this many refused entries. */
const MAX_NAMED = 5;

interface Attachment {
  readonly containerId: string;
  readonly ifname: string;
}

/** A pod of this node that asks for extra sources. */
interface Asking {
  readonly attachment: Attachment;
  readonly pod: PodIdentity;
  readonly asked: string;
}

/**
 * The sources that pods may use besides their addresses, as far as their Namespaces allow (docs/spec/pod-network.md#5.7). A pod's annotation is read at its ADD, and
 * at the start of coild; the one of a Namespace counts at once. Holds one entry for each attachment whose pod has the annotation.
 */
export class ExtraSources {
  readonly #parts: ConstructorParameters<typeof ExtraSources>[0];
  readonly #asking = new Map<string, Asking>();
  /** Attachments of this process: their ADD has said what they ask for. At most one entry for each attachment of the node. */
  readonly #added = new Set<string>();
  readonly #repeats = new Repeats();

  constructor(parts: {
    readonly network: Pick<PodNetwork, "setExtraSources" | "list" | "judgeAll">;
    /** The annotations of a Namespace that is known; `undefined`: it is not. */
    readonly namespace: (name: string) => Pick<Namespace, "metadata"> | undefined;
    readonly events: Pick<EventRecorder, "record">;
    /** Called when attachments may use other sources: the guard is to be compared. */
    readonly onChange: () => void;
    readonly log: Logger;
    readonly clock: Clock;
  }) {
    this.#parts = parts;
  }

  /** The extra sources of a pod whose link is about to be made. `allowed` is the annotation of its Namespace. */
  forAdd(attachment: Attachment, pod: FoundPod, allowed: string | undefined): readonly Cidr[] {
    const asked = pod.annotations?.[EXTRA_SOURCES];
    const key = keyOf(attachment);
    this.#added.add(key);
    this.#asking.delete(key);
    if (asked === undefined) return [];
    const asking = { attachment, pod, asked };
    this.#asking.set(key, asking);
    return this.#granted(asking, allowed);
  }

  /** Call it when an attachment is gone. */
  forget(attachment: Attachment): void {
    this.#added.delete(keyOf(attachment));
    this.#asking.delete(keyOf(attachment));
  }

  /** Call it when a Namespace is new, has changed or is gone: what it allows now counts for its pods. */
  noteNamespace(name: string): void {
    this.#apply([...this.#asking.values()].filter(({ pod }) => pod.namespace === name));
  }

  /**
   * Learns what the pods that run ask for, once, trying until the API server answers; until then the kernel has what it had. Call it when the addresses of all
   * attachments are known as a whole. Attachments that this process has added are not changed, and neither are those whose addresses lead to no pod, or to more
   * than one. At the end all links are judged.
   */
  async learn(
    parts: { readonly api: Pick<KubeApi, "listAll">; readonly nodeName: string },
    { signal }: { readonly signal: AbortSignal },
  ): Promise<void> {
    const { log, clock, network } = this.#parts;
    const fieldSelector = `spec.nodeName=${parts.nodeName}`;
    const once = async (): Promise<void> => {
      const { items } = await parts.api.listAll(resources.pods, { fieldSelector, signal });
      const byAddress = podsByAddress(items, parts.nodeName);
      const silent: Attachment[] = [];
      const asking: Asking[] = [];
      for (const { containerId, ifname, addresses } of network.list()) {
        const attachment = { containerId, ifname };
        // The list may be older than an ADD, and name the pod that had the address before.
        if (this.#added.has(keyOf(attachment))) continue;
        const pods = new Set(addresses.flatMap((address) => byAddress.get(String(address)) ?? []));
        const [pod] = pods;
        if (pod === undefined || pods.size > 1) continue;
        const { namespace = "", name, uid, annotations } = pod.metadata;
        const asked = annotations?.[EXTRA_SOURCES];
        if (asked === undefined) silent.push(attachment);
        else asking.push({ attachment, pod: { namespace, name, uid }, asked });
      }
      for (const one of asking) this.#asking.set(keyOf(one.attachment), one);
      this.#apply(asking, silent);
    };
    await retry(once, {
      signal,
      clock,
      backoff: new Backoff({ initialMs: 1000, maxMs: 30_000 }),
      isPassing: (error) => error instanceof ExpectedError,
      onFailure: (error, retryInMs) => {
        const text = describeError(error);
        if (this.#repeats.isNew("learn", text))
          log.warn(
            "cannot read which extra sources pods ask for; the kernel's stay, and links that were not guarded before are not judged",
            { error: text, retryInMs },
          );
      },
    });
    network.judgeAll();
    this.#parts.onChange();
  }

  /** Without its Namespace it is not known what a pod may use: what the kernel has stays. */
  #apply(asking: readonly Asking[], silent: readonly Attachment[] = []): void {
    const granted = asking.flatMap((one) => {
      const namespace = this.#parts.namespace(one.pod.namespace);
      if (namespace === undefined) return [];
      const extra = this.#granted(one, namespace.metadata.annotations?.[ALLOWED_SOURCES]);
      return [{ attachment: one.attachment, extra }];
    });
    if (silent.length === 0 && granted.length === 0) return;
    this.#parts.network.setExtraSources([...silent.map((attachment) => ({ attachment, extra: [] })), ...granted]);
    this.#parts.onChange();
  }

  #granted({ pod, asked }: Asking, allowed: string | undefined): readonly Cidr[] {
    const { granted, refused } = allowedSources(asked, allowed);
    if (refused.length > 0) {
      const named = refused.slice(0, MAX_NAMED).join("; ");
      const more = refused.length > MAX_NAMED ? `; and ${refused.length - MAX_NAMED} more` : "";
      const note = `Extra sources of this pod do not count: ${named}${more}. Whoever administers Namespace ${pod.namespace} can allow them by its annotation ${ALLOWED_SOURCES}.`;
      if (this.#repeats.isNew(pod.uid, note)) {
        this.#parts.log.warn("extra sources of a pod are refused", {
          pod: `${pod.namespace}/${pod.name}`,
          refused: named,
        });
        this.#parts.events.record({
          regarding: podOf(pod),
          type: "Warning",
          reason: EXTRA_SOURCES_REFUSED,
          note,
        });
      }
    } else this.#repeats.forget(pod.uid);
    return granted;
  }
}

/** The annotation of a Namespace with what its pods may use; only read for pods that ask. */
export async function allowedBy(
  pod: FoundPod,
  namespaceOf: (name: string, options: AbortOptions) => Promise<Pick<Namespace, "metadata">>,
  options: AbortOptions,
): Promise<string | undefined> {
  if (pod.annotations?.[EXTRA_SOURCES] === undefined) return undefined;
  return (await namespaceOf(pod.namespace, options)).metadata.annotations?.[ALLOWED_SOURCES];
}

function keyOf({ containerId, ifname }: Attachment): string {
  return `${containerId}/${ifname}`;
}
