import type { NicClaim, NicStatus } from "#kube/nic";
import { NicCallError } from "./failure.ts";
import type { GateState } from "./gates.ts";
import type { NicServiceDeps, SandboxPlanLike } from "./service-deps.ts";

type GateWaitsDeps = Pick<NicServiceDeps<SandboxPlanLike>, "claims" | "describe" | "onFailed" | "place">;

/** The waits of ADDs at the two gates of their claims. */
export class GateWaits {
  readonly #deps: GateWaitsDeps;

  constructor(deps: GateWaitsDeps) {
    this.#deps = deps;
  }

  /** Waits at a gate. A claim that is not there yet waits too. Throws `nic-failed` at once for what no time heals. */
  async at(
    uid: string,
    look: (claim: NicClaim) => GateState,
    options: { readonly atMostMs: number; readonly signal: AbortSignal },
  ): Promise<GateState> {
    let last: GateState = { state: "waiting", nics: [] };
    const settled = await this.#deps.claims.wait(
      uid,
      (claim) => {
        last = claim === undefined ? { state: "waiting", nics: [] } : look(claim);
        return last.state === "waiting" ? undefined : last;
      },
      options,
    );
    const state = settled ?? last;
    if (state.state !== "failed") return state;
    const why = this.#deps.describe(state.nics);
    const claim = this.#deps.claims.get(uid);
    if (claim !== undefined) this.#deps.onFailed(claim, why);
    throw new NicCallError("nic-failed", `NICs of the pod failed: ${why}`);
  }

  /** The failure of an ADD whose ports were not active in time. */
  inactive(nics: readonly NicStatus[]): NicCallError {
    const text = `waiting for ports: ${this.#deps.describe(nics)}; the node has plugged them: is the provider's agent on ${this.#deps.place.nodeName} running?`;
    return new NicCallError("try-again", text);
  }

  /** The failure of an ADD whose ports were not bound in time; without NICs there is no claim. */
  waiting(nics: readonly NicStatus[]): NicCallError {
    return new NicCallError(
      "try-again",
      `waiting for ports: ${nics.length === 0 ? "the pod has no claim on this node yet" : this.#deps.describe(nics)}`,
    );
  }
}
