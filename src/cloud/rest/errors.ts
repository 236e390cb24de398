import { ExpectedError } from "#base/errors";

/**
 * - `invalid` 400 and any other 4xx without a code of its own, `unauthorized` 401, `forbidden` 403, `not-found` 404, `conflict` 409,
 *   `precondition` 412, `over-limit` 413.
 * - `unavailable`: 408, 429 and any 5xx. A write may or may not have happened.
 * - `unreachable`: no complete answer. A write may or may not have happened.
 * - `timeout`: no complete answer within the request's time. A write may or may not have happened.
 * - `circuit-open`: not sent, because the last requests had no answer. Nothing has happened.
 * - `bad-response`: an answer that does not have the form that the API promises. A write may have happened.
 */
export const CLOUD_ERROR_CODES = [
  "invalid",
  "unauthorized",
  "forbidden",
  "not-found",
  "conflict",
  "precondition",
  "over-limit",
  "unavailable",
  "unreachable",
  "timeout",
  "circuit-open",
  "bad-response",
] as const;
export type CloudErrorCode = (typeof CLOUD_ERROR_CODES)[number];

/** More about a {@link CloudError}. */
export interface CloudErrorInit {
  /** The HTTP status, if there was an answer. */
  readonly httpStatus?: number | undefined;
  /** The server's own name of the fault, such as `IpAddressAlreadyAllocated`. */
  readonly type?: string | undefined;
  /** The id by which the server's logs have the request. */
  readonly requestId?: string | undefined;
  /** The time that the server asked the client to wait, in milliseconds. */
  readonly retryAfterMs?: number | undefined;
  readonly cause?: unknown;
}

/** A failed request to a cloud's API. The message names the action, the server and the server's own words, without secrets. */
export class CloudError extends ExpectedError<CloudErrorCode> {
  override readonly name = "CloudError";
  readonly httpStatus: number | undefined;
  readonly type: string | undefined;
  readonly requestId: string | undefined;
  readonly retryAfterMs: number | undefined;

  constructor(code: CloudErrorCode, message: string, init: CloudErrorInit = {}) {
    super(code, message, "cause" in init ? { cause: init.cause } : {});
    this.httpStatus = init.httpStatus;
    this.type = init.type;
    this.requestId = init.requestId;
    this.retryAfterMs = init.retryAfterMs;
  }

  /** True if the server may have done what was asked all the same; a look tells. */
  get isAmbiguous(): boolean {
    return ["unavailable", "unreachable", "timeout", "bad-response"].includes(this.code);
  }
}

/** True for a {@link CloudError} with one of the given codes; without codes, for any. */
export function isCloudError(error: unknown, ...codes: readonly CloudErrorCode[]): error is CloudError {
  return error instanceof CloudError && (codes.length === 0 || codes.includes(error.code));
}

const BY_STATUS: Readonly<Record<number, CloudErrorCode>> = {
  401: "unauthorized",
  403: "forbidden",
  404: "not-found",
  408: "unavailable",
  409: "conflict",
  412: "precondition",
  413: "over-limit",
  429: "unavailable",
};

/** The code of an HTTP status of 400 or more. */
export function codeOfStatus(status: number): CloudErrorCode {
  return BY_STATUS[status] ?? (status >= 500 ? "unavailable" : "invalid");
}
