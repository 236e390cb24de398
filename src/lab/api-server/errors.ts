import { ExpectedError } from "#base/errors";
import type { Json, JsonObject } from "./object/json.ts";

/** The reasons of meta/v1 Status in this server's answers. */
export type StatusReason =
  | "BadRequest"
  | "Unauthorized"
  | "Forbidden"
  | "NotFound"
  | "AlreadyExists"
  | "Conflict"
  | "Gone"
  | "Expired"
  | "Invalid"
  | "MethodNotAllowed"
  | "NotAcceptable"
  | "RequestEntityTooLarge"
  | "UnsupportedMediaType"
  | "TooManyRequests"
  | "InternalError"
  | "NotImplemented"
  | "ServiceUnavailable"
  | "Timeout";

/** HTTP status for each reason (apimachinery pkg/api/errors). */
export const STATUS_CODES: Readonly<Record<StatusReason, number>> = {
  BadRequest: 400,
  Unauthorized: 401,
  Forbidden: 403,
  NotFound: 404,
  AlreadyExists: 409,
  Conflict: 409,
  Gone: 410,
  Expired: 410,
  Invalid: 422,
  MethodNotAllowed: 405,
  NotAcceptable: 406,
  RequestEntityTooLarge: 413,
  UnsupportedMediaType: 415,
  TooManyRequests: 429,
  InternalError: 500,
  NotImplemented: 501,
  ServiceUnavailable: 503,
  Timeout: 504,
};

/** One field's fault (meta/v1 StatusCause). `field` is a path such as `spec.ports[0].port`. */
export type Cause = { reason: string; message: string; field: string };

/** The object of the error (meta/v1 StatusDetails). */
export type StatusDetails = {
  name?: string;
  group?: string;
  kind?: string;
  uid?: string;
  causes?: Cause[];
  retryAfterSeconds?: number;
};

/** The only error class of the API server. Clients get it as a meta/v1 Status with the HTTP status of its reason. */
export class ApiError extends ExpectedError<StatusReason> {
  override readonly name = "ApiError";
  readonly details: StatusDetails | undefined;
  /** Members that are merged into the metadata of the Status, such as `continue` for an expired list. */
  readonly listMeta: JsonObject;

  constructor(
    code: StatusReason,
    message: string,
    init: { readonly details?: StatusDetails; readonly listMeta?: JsonObject; readonly cause?: unknown } = {},
  ) {
    super(code, message, "cause" in init ? { cause: init.cause } : {});
    this.details = init.details;
    this.listMeta = init.listMeta ?? {};
  }

  get httpStatus(): number {
    return STATUS_CODES[this.code];
  }

  /** The body that clients get. */
  toStatus(): JsonObject {
    return {
      kind: "Status",
      apiVersion: "v1",
      metadata: this.listMeta,
      status: "Failure",
      message: this.message,
      reason: this.code,
      ...(this.details === undefined ? {} : { details: this.details as unknown as Json }),
      code: this.httpStatus,
    };
  }
}

/** The resource and object of an error. */
export interface ErrorSubject {
  readonly group: string;
  readonly plural: string;
  readonly kind?: string;
}

function qualified(subject: ErrorSubject): string {
  return subject.group === "" ? subject.plural : `${subject.plural}.${subject.group}`;
}

function detailsOf(subject: ErrorSubject, name: string): StatusDetails {
  return { name, ...(subject.group === "" ? {} : { group: subject.group }), kind: subject.plural };
}

/** 404 for an object. */
export function notFound(subject: ErrorSubject, name: string): ApiError {
  return new ApiError("NotFound", `${qualified(subject)} "${name}" not found`, { details: detailsOf(subject, name) });
}

/** 404 for a path that nothing serves. */
export function noSuchResource(): ApiError {
  return new ApiError("NotFound", "the server could not find the requested resource", { details: {} });
}

/** 409 for a name that is taken. */
export function alreadyExists(subject: ErrorSubject, name: string): ApiError {
  return new ApiError("AlreadyExists", `${qualified(subject)} "${name}" already exists`, {
    details: detailsOf(subject, name),
  });
}

/** 409 for a conflicting write or a failed precondition. */
export function conflict(subject: ErrorSubject, name: string, why?: string): ApiError {
  const reason = why ?? "the object has been modified; please apply your changes to the latest version and try again";
  return new ApiError("Conflict", `Operation cannot be fulfilled on ${qualified(subject)} "${name}": ${reason}`, {
    details: detailsOf(subject, name),
  });
}

/** 422 with one cause for each fault. */
export function invalid(subject: ErrorSubject, name: string, causes: readonly Cause[]): ApiError {
  const kind = subject.kind ?? subject.plural;
  const full = subject.group === "" ? kind : `${kind}.${subject.group}`;
  const lines = causes.map((cause) => `${cause.field}: ${cause.message}`);
  const text = lines.length === 1 ? lines[0] : `[${lines.join(", ")}]`;
  return new ApiError("Invalid", `${full} "${name}" is invalid: ${text}`, {
    details: {
      name,
      ...(subject.group === "" ? {} : { group: subject.group }),
      kind,
      causes: [...causes],
    },
  });
}

/** An error with status 403. */
export function forbidden(subject: ErrorSubject, name: string, why: string): ApiError {
  const what = name === "" ? qualified(subject) : `${qualified(subject)} "${name}"`;
  return new ApiError("Forbidden", `${what} is forbidden: ${why}`, { details: detailsOf(subject, name) });
}

/** An error with status 400. */
export function badRequest(message: string, cause?: unknown): ApiError {
  return new ApiError("BadRequest", message, cause === undefined ? {} : { cause });
}
