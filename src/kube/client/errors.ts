import type * as MetaV1 from "kubernetes-types/meta/v1.js";
import { ExpectedError } from "#base/errors";

/** The Status object of the API server (meta/v1). */
export type KubeStatus = MetaV1.Status;

/**
 * - `not-found` 404, `already-exists` 409 of a create, `conflict` any other 409, `invalid` 400/405/406/413/415/422,
 *   `forbidden` 403, `unauthorized` 401, `gone` 410 or an expired resourceVersion or continue token,
 *   `too-many-requests` 429, `server` any 5xx.
 * - `unreachable`: no complete answer. A write may or may not have happened.
 * - `timeout`: no complete answer within the call's `timeoutMs`. A write may or may not have happened.
 * - `bad-response`: an answer that does not have the form that the API promises. A write may have happened.
 */
export const KUBE_ERROR_CODES = [
  "not-found",
  "already-exists",
  "conflict",
  "invalid",
  "forbidden",
  "unauthorized",
  "gone",
  "too-many-requests",
  "server",
  "unreachable",
  "timeout",
  "bad-response",
] as const;
export type KubeErrorCode = (typeof KUBE_ERROR_CODES)[number];

/** A failed call to an API server. The message names the call, the object and the server's own words. */
export class KubeError extends ExpectedError<KubeErrorCode> {
  override readonly name = "KubeError";
  /** The HTTP status, if there was an answer. */
  readonly httpStatus: number | undefined;
  /** The server's Status object, when it sent one: `reason`, `details.causes`, … */
  readonly status: KubeStatus | undefined;
  /** The time that the server asked the client to wait, in milliseconds. */
  readonly retryAfterMs: number | undefined;

  constructor(
    code: KubeErrorCode,
    message: string,
    init: {
      readonly httpStatus?: number | undefined;
      readonly status?: KubeStatus | undefined;
      readonly retryAfterMs?: number | undefined;
      readonly cause?: unknown;
    } = {},
  ) {
    super(code, message, "cause" in init ? { cause: init.cause } : {});
    this.httpStatus = init.httpStatus;
    this.status = init.status;
    this.retryAfterMs = init.retryAfterMs;
  }
}

/** True for a {@link KubeError} with one of the given codes. */
export function isKubeError(error: unknown, ...codes: readonly KubeErrorCode[]): error is KubeError {
  return error instanceof KubeError && (codes.length === 0 || codes.includes(error.code));
}

/**
 * True if the server could not be reached: no complete answer came, or a gateway answered instead. A growing back-off does not help an
 * unreachable server; it only delays the work after the server is reachable again.
 */
export function isAway(error: unknown): error is KubeError {
  if (!(error instanceof KubeError)) return false;
  if (error.code === "unreachable" || error.code === "timeout") return true;
  return [502, 503, 504].includes(error.httpStatus ?? 0) && error.retryAfterMs === undefined;
}

/** The code of an answer that is not a success, from its HTTP status and the reason in its Status. */
export function codeOf(httpStatus: number, reason: string | undefined): KubeErrorCode {
  switch (httpStatus) {
    case 401:
      return "unauthorized";
    case 403:
      return "forbidden";
    case 404:
      return "not-found";
    case 409:
      return reason === "AlreadyExists" ? "already-exists" : "conflict";
    case 410:
      return "gone";
    case 429:
      return "too-many-requests";
    default:
      if (reason === "Expired" || reason === "Gone") return "gone";
      if (httpStatus >= 500) return "server";
      return httpStatus >= 400 ? "invalid" : "bad-response";
  }
}

/** The kinds of faults of a kubeconfig or of the credentials it names. */
export const KUBE_CONFIG_ERROR_CODES = ["not-found", "unreadable", "invalid", "unsupported", "exec-failed"] as const;
export type KubeConfigErrorCode = (typeof KUBE_CONFIG_ERROR_CODES)[number];

/** A kubeconfig, or a file or program that it names, cannot be used. The message is one line: the file, the field and the fix. */
export class KubeConfigError extends ExpectedError<KubeConfigErrorCode> {
  override readonly name = "KubeConfigError";
}

/** The reason why a call failed: the server's refusal or silence, or credentials that cannot be read or made now. */
export type ApiFailure = KubeError | KubeConfigError;

/**
 * True for a failure of a call that a later one need not have. Whoever goes on without an answer asks this, not for a {@link KubeError} alone: while the
 * network is away the plugin that makes our credentials fails before any server is asked.
 */
export function isApiFailure(error: unknown): error is ApiFailure {
  return error instanceof KubeError || error instanceof KubeConfigError;
}
