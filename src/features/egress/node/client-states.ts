import type { Backoff } from "#base/async";
import { type HeldEgresses, NOTHING_HELD } from "../client/index.ts";

/** State of the NAT client of one pod in this process. Times are of the monotonic clock, in milliseconds. */
export interface ClientState {
  readonly hasClient: boolean;
  /** The pauses while the namespace of the running pod is not found. */
  readonly absent: Backoff | undefined;
  /** The end of an ADD whose pod the watch does not show yet. */
  readonly unseenAt: number | undefined;
  /** The begin of the last comparison. */
  readonly comparedAt: number | undefined;
  /** True if nothing of ours is in the other packet filter of the pod: only an earlier process can have left something. */
  readonly isOtherClean: boolean;
  /** The gateways and closed destinations of the last comparison; `undefined` before the first one. */
  readonly held: HeldEgresses | undefined;
}

const NEW: ClientState = {
  hasClient: false,
  absent: undefined,
  unseenAt: undefined,
  comparedAt: undefined,
  isOtherClean: false,
  held: undefined,
};

/** The states by the UID of the pod. Holds one for each pod that had an ADD or a comparison, until {@link ClientStates.forget}. */
export class ClientStates {
  readonly #states = new Map<string, ClientState>();

  of(uid: string): ClientState {
    return this.#states.get(uid) ?? NEW;
  }

  update(uid: string, change: Partial<ClientState>): void {
    this.#states.set(uid, { ...this.of(uid), ...change });
  }

  forget(uid: string): void {
    this.#states.delete(uid);
  }

  /** Returns true if the pod had something of an Egress at its last comparison. */
  holds(uid: string): boolean {
    const { held } = this.of(uid);
    return held !== undefined && held !== NOTHING_HELD;
  }

  /** The UIDs of the pods that have a NAT client. */
  get clients(): readonly string[] {
    return [...this.#states].filter(([, { hasClient }]) => hasClient).map(([uid]) => uid);
  }
}
