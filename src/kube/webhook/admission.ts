import { describeError, ExpectedError } from "#base/errors";
import type { JsonPatchOperation } from "#kube/client";

/** The faults of a webhook call or of the webhook server. */
export type WebhookErrorCode = "invalid-review" | "listen-failed" | "handshake-failed" | "expired" | "no-secret";

/** The request is not an AdmissionReview, or the webhook server cannot serve. */
export class WebhookError extends ExpectedError<WebhookErrorCode> {
  override readonly name = "WebhookError";
}

/** The versions of AdmissionReview; the answer has the version of the request. */
export type AdmissionVersion = "admission.k8s.io/v1" | "admission.k8s.io/v1beta1";

/** The question of an API server whether a write is allowed (admission.k8s.io AdmissionRequest; checked as far as it is used). */
export interface AdmissionRequest {
  readonly uid: string;
  readonly operation: "CREATE" | "UPDATE" | "DELETE" | "CONNECT";
  readonly kind: { readonly group: string; readonly version: string; readonly kind: string };
  /** The name of the object; absent if the API server will generate it. */
  readonly name: string | undefined;
  readonly namespace: string | undefined;
  readonly subResource: string | undefined;
  readonly dryRun: boolean;
  /** The object that would be stored; absent for DELETE. Its schema is not checked here, because the API server has checked it. */
  readonly object: Readonly<Record<string, unknown>> | undefined;
  /** The object as it is stored; present for UPDATE and DELETE. */
  readonly oldObject: Readonly<Record<string, unknown>> | undefined;
  readonly userInfo: { readonly username: string; readonly groups: readonly string[] };
}

/** One fault, as metav1.StatusCause. */
export interface AdmissionCause {
  readonly reason: string;
  readonly field: string;
  readonly message: string;
}

/** The answer of a handler. */
export type AdmissionAnswer =
  | { readonly allowed: true; readonly patch?: readonly JsonPatchOperation[]; readonly warnings?: readonly string[] }
  | {
      readonly allowed: false;
      /** The reason as one line of text. */
      readonly message: string;
      /** The reason of the Status, such as `Invalid` (the default with causes) or `Forbidden`. */
      readonly reason?: string;
      /** HTTP status. Default 422 with causes, else 403. */
      readonly code?: number;
      readonly causes?: readonly AdmissionCause[];
      readonly warnings?: readonly string[];
    };

/** A requested review, and the version of its answer. */
export interface ParsedReview {
  readonly apiVersion: AdmissionVersion;
  readonly request: AdmissionRequest;
}

/** Parses the body of a webhook call. Pure. Throws {@link WebhookError} `invalid-review`. */
export function parseAdmissionReview(body: string): ParsedReview {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch (cause) {
    throw new WebhookError("invalid-review", `not an AdmissionReview: ${describeError(cause)}`, { cause });
  }
  const review = record(value, "the body");
  const { apiVersion } = review;
  if (review["kind"] !== "AdmissionReview") throw bad("kind", `is ${show(review["kind"])}, not AdmissionReview`);
  if (apiVersion !== "admission.k8s.io/v1" && apiVersion !== "admission.k8s.io/v1beta1") {
    throw bad("apiVersion", `is ${show(apiVersion)}, must be admission.k8s.io/v1 or admission.k8s.io/v1beta1`);
  }
  return { apiVersion, request: parseRequest(record(review["request"], "request")) };
}

function parseRequest(request: Readonly<Record<string, unknown>>): AdmissionRequest {
  const { operation, uid } = request;
  if (typeof uid !== "string" || uid === "") throw bad("request.uid", "is missing");
  if (operation !== "CREATE" && operation !== "UPDATE" && operation !== "DELETE" && operation !== "CONNECT") {
    throw bad("request.operation", `is ${show(operation)}`);
  }
  const kind = record(request["kind"], "request.kind");
  const user = request["userInfo"] === undefined ? {} : record(request["userInfo"], "request.userInfo");
  const groups = user["groups"];
  return {
    uid,
    operation,
    kind: { group: text(kind, "group") ?? "", version: text(kind, "version") ?? "", kind: text(kind, "kind") ?? "" },
    name: text(request, "name"),
    namespace: text(request, "namespace"),
    subResource: text(request, "subResource"),
    dryRun: request["dryRun"] === true,
    object: optionalRecord(request, "object"),
    oldObject: optionalRecord(request, "oldObject"),
    userInfo: {
      username: text(user, "username") ?? "",
      groups: Array.isArray(groups) ? groups.filter((group) => typeof group === "string") : [],
    },
  };
}

/** The body of the answer to a review. Pure. */
export function formatAdmissionReview(review: ParsedReview, answer: AdmissionAnswer): string {
  const { uid } = review.request;
  const warnings = answer.warnings === undefined || answer.warnings.length === 0 ? {} : { warnings: answer.warnings };
  const response = answer.allowed
    ? { uid, allowed: true, ...warnings, ...patchFields(answer.patch ?? []) }
    : { uid, allowed: false, ...warnings, status: denial(review.request, answer) };
  return JSON.stringify({ apiVersion: review.apiVersion, kind: "AdmissionReview", response });
}

/** Denies with one line that names every fault, as API servers word it. */
export function denyInvalid(request: AdmissionRequest, causes: readonly AdmissionCause[]): AdmissionAnswer {
  const list = causes.map((cause) => `${cause.field}: ${cause.message}`);
  const faults = list.length === 1 ? list[0] : `[${list.join(", ")}]`;
  const { group, kind } = request.kind;
  const what = group === "" ? kind : `${kind}.${group}`;
  return {
    allowed: false,
    message: `${what} "${request.name ?? ""}" is invalid: ${faults}`,
    reason: "Invalid",
    causes,
  };
}

function patchFields(patch: readonly JsonPatchOperation[]): object {
  if (patch.length === 0) return {};
  return { patchType: "JSONPatch", patch: Buffer.from(JSON.stringify(patch)).toString("base64") };
}

function denial(request: AdmissionRequest, answer: Extract<AdmissionAnswer, { allowed: false }>): object {
  const { causes } = answer;
  const { group, kind } = request.kind;
  return {
    metadata: {},
    status: "Failure",
    message: answer.message,
    reason: answer.reason ?? (causes === undefined ? "Forbidden" : "Invalid"),
    code: answer.code ?? (causes === undefined ? 403 : 422),
    ...(causes === undefined ? {} : { details: { name: request.name ?? "", group, kind, causes } }),
  };
}

function record(value: unknown, what: string): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw bad(what, "is not an object");
  return value as Readonly<Record<string, unknown>>;
}

function optionalRecord(
  from: Readonly<Record<string, unknown>>,
  name: string,
): Readonly<Record<string, unknown>> | undefined {
  const value = from[name];
  return value === undefined || value === null ? undefined : record(value, `request.${name}`);
}

function text(from: Readonly<Record<string, unknown>>, name: string): string | undefined {
  const value = from[name];
  if (value === undefined || value === null || value === "") return undefined;
  if (typeof value !== "string") throw bad(`request.${name}`, "is not a text");
  return value;
}

function bad(where: string, why: string): WebhookError {
  return new WebhookError("invalid-review", `not an AdmissionReview: ${where} ${why}`);
}

function show(value: unknown): string {
  return JSON.stringify(value)?.slice(0, 60) ?? "missing";
}
