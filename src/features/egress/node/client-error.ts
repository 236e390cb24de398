import { ExpectedError } from "#base/errors";
import { isApiFailure } from "#kube/client";

/** The time in which the API server must answer all requests of one ADD, milliseconds (docs/spec/pod-network.md#20). */
export const API_MS = 5000;

/**
 * - `refused`: an Egress that the pod names does not allow it. The event of the pod is written already.
 * - `not-ready`: the API server does not answer.
 * - `try-again`: something is missing that may come: an Egress, its Service, a driver, the pod's interface.
 * - `incomplete`: the pod lacks something of its client.
 */
export type EgressClientErrorCode = "refused" | "not-ready" | "try-again" | "incomplete";

/** Thrown by `EgressClients` for a call of the container runtime. */
export class EgressClientError extends ExpectedError<EgressClientErrorCode> {
  override readonly name = "EgressClientError";
}

/** Makes failures of the API server `not-ready`. `what` is the request in words, such as `read Service a/b`. */
export async function apiCall<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isApiFailure(error)) throw error;
    throw new EgressClientError("not-ready", `cannot ${what}: ${error.message}`, { cause: error });
  }
}
