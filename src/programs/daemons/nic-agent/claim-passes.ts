import type { AbortOptions } from "#base/async";
import type { ClaimBook } from "#features/nic-agent";
import type { SandboxPlan } from "#features/nic-cni";
import type { NicClaim } from "#kube/nic";
import type { PassRecording, RecordedWork } from "../../shared/pass-record/index.ts";

/** Work on claims and on ports of containers as passes of the record of `--record-dir`, if there is one. */
export class ClaimPasses {
  readonly #recording: Pick<PassRecording, "pass"> | undefined;
  readonly #claims: Pick<ClaimBook, "get">;

  constructor(recording: Pick<PassRecording, "pass"> | undefined, claims: Pick<ClaimBook, "get">) {
    this.#recording = recording;
    this.#claims = claims;
  }

  /** A pass over a claim. Resolves to `undefined` while it is set aside: its NICs stay as they are. */
  of<T>(name: string, claim: NicClaim, work: () => Promise<T>, signal: AbortSignal): Promise<T | undefined> {
    const { name: key, namespace, resourceVersion } = claim.metadata;
    const about = () => podOf(claim);
    return this.#pass({ name, key: `${namespace}/${key}`, version: () => resourceVersion, about }, work, { signal });
  }

  /** A repair of a container's ports in its switch, as a pass. Its event is the pod's, if the pod has its claim. */
  repair(
    { containerId, podUid }: Pick<SandboxPlan, "containerId" | "podUid">,
    work: () => Promise<number>,
    signal: AbortSignal,
  ): Promise<number | undefined> {
    const about = () => {
      const claim = this.#claims.get(podUid);
      return claim === undefined ? undefined : podOf(claim);
    };
    return this.#pass({ name: "switch-repairs", key: containerId, version: () => "", about }, work, { signal });
  }

  async #pass<T>(of: RecordedWork, work: () => Promise<T>, { signal }: AbortOptions): Promise<T | undefined> {
    if (this.#recording === undefined) return await work();
    const done = await this.#recording.pass(of, work, { signal });
    return "value" in done ? done.value : undefined;
  }
}

/** The pod of a claim, for events. */
export function podOf({ metadata: { namespace }, spec: { podName: name, podUID: uid } }: NicClaim) {
  return { apiVersion: "v1", kind: "Pod", name, uid, ...(namespace === undefined ? {} : { namespace }) };
}
