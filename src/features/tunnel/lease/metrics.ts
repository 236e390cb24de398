import { KubeError } from "#kube/client";

/** The outcome of one request about Leases. */
export interface LeaseRequest {
  /** The HTTP status, such as `200`; `0` without an answer. */
  readonly code: string;
  /** The reason of the API server, such as `Conflict`; empty for a success. */
  readonly reason: string;
  readonly seconds: number;
}

/** The counters of the server's Lease controller. */
export interface ServerLeaseMetrics {
  listed(request: LeaseRequest): void;
  deleted(request: LeaseRequest): void;
  culled(): void;
}

/** The counters of the agent's requests about Leases. */
export interface AgentLeaseMetrics {
  listed(request: LeaseRequest): void;
  watched(request: Omit<LeaseRequest, "seconds">): void;
}

/** Status and reason of a failed request; `undefined` stands for a success. Rethrows errors that are not a `KubeError`. */
export function outcomeOf(error: unknown): { readonly code: string; readonly reason: string } {
  if (error === undefined) return { code: "200", reason: "" };
  if (!(error instanceof KubeError)) throw error;
  return { code: String(error.httpStatus ?? 0), reason: error.status?.reason ?? error.code };
}
