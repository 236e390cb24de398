import { KubeError } from "#kube/client";

/** What came of one request about Leases: an HTTP status and the server's reason. */
export interface LeaseRequest {
  /** `200`; `0` where there was no answer. */
  readonly code: string;
  /** As the API server has it, such as `Conflict`; empty for a success. */
  readonly reason: string;
  readonly seconds: number;
}

/** What the server's Lease controller counts. */
export interface ServerLeaseMetrics {
  listed(request: LeaseRequest): void;
  deleted(request: LeaseRequest): void;
  culled(): void;
}

/** What the agent's counter of Leases counts. */
export interface AgentLeaseMetrics {
  listed(request: LeaseRequest): void;
  watched(request: Omit<LeaseRequest, "seconds">): void;
}

/** Status and reason of a request that failed, or with `undefined` succeeded. Throws what is no failure of the API. */
export function outcomeOf(error: unknown): { readonly code: string; readonly reason: string } {
  if (error === undefined) return { code: "200", reason: "" };
  if (!(error instanceof KubeError)) throw error;
  return { code: String(error.httpStatus ?? 0), reason: error.status?.reason ?? error.code };
}
