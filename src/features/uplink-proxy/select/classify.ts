import { describeError, isAbortError } from "#base/errors";
import type { IpAddress } from "#base/ip";
import type { DialFailure } from "#base/uplink-model";
import { DnsError } from "../dns/index.ts";

/** The kinds of failure of an attempt that the choice of an uplink distinguishes (docs/spec/uplink-proxy.md#6.1.8, #6.2). */
export interface ClassifiedFailure {
  readonly failure: DialFailure;
  readonly text: string;
}

/** Failure and text of an errno. */
const BY_ERRNO: Readonly<Record<string, readonly [DialFailure, string]>> = {
  ETIMEDOUT: ["timeout", "connection timed out"],
  ECONNREFUSED: ["refused", "connection refused"],
  // A reset counts as an answer of the destination.
  ECONNRESET: ["refused", "connection reset by peer"],
  ENETUNREACH: ["unreachable", "network is unreachable"],
  EHOSTUNREACH: ["unreachable", "no route to host"],
  ENETDOWN: ["unreachable", "network is down"],
  // Causes are routes of type prohibit, and firewalls that send this error.
  EACCES: ["unreachable", "permission denied"],
  EPERM: ["unreachable", "operation not permitted"],
  EADDRINUSE: ["ports-exhausted", "no free source port"],
};

/** Never throws; an unknown error is `other`, with the error's own text. */
export function classify(
  error: unknown,
  source: IpAddress | undefined,
  hasAddress: (address: IpAddress) => boolean,
): ClassifiedFailure {
  if (error instanceof DnsError) return { failure: "dns", text: error.message };
  if (isAbortError(error)) return { failure: "timeout", text: "i/o timeout" };
  const errno = errnoOf(error);
  if (errno === "EADDRNOTAVAIL") {
    if (source === undefined || !hasAddress(source)) {
      return { failure: "address-gone", text: "cannot assign requested address" };
    }
    return { failure: "ports-exhausted", text: "no free source port" };
  }
  const known = BY_ERRNO[errno];
  return known === undefined ? { failure: "other", text: describeError(error) } : { failure: known[0], text: known[1] };
}

/** The errno of an error: Node.js has it as `code`, our own system calls as `errno`. */
export function errnoOf(error: unknown): string {
  if (!(error instanceof Error)) return "";
  const { code, errno } = error as { readonly code?: unknown; readonly errno?: unknown };
  if (typeof errno === "string") return errno;
  return typeof code === "string" ? code : "";
}
