import { describeError } from "#base/errors";
import type { Dispatcher } from "#base/undici";
import { codeOf, KubeError, type KubeStatus } from "./errors.ts";

/** The maximum size of an answer, in bytes; V8 could not hold a string of twice this size. */
export const MAX_ANSWER_BYTES = 256 * 1024 * 1024;
const MAX_ERROR_BYTES = 256 * 1024;
/** The longest pause that a server can request, in milliseconds. */
const MAX_RETRY_AFTER_MS = 120_000;

/** Reads the whole body. Rejects with `bad-response` if the body is too long, with `unreachable` if it ends too early. */
export async function readText(
  action: string,
  answer: Pick<Dispatcher.ResponseData, "body">,
  maxBytes = MAX_ANSWER_BYTES,
): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    for await (const chunk of answer.body as AsyncIterable<Uint8Array>) {
      length += chunk.length;
      if (length > maxBytes) break;
      chunks.push(chunk);
    }
  } catch (cause) {
    throw new KubeError(
      "unreachable",
      `Cannot ${action}: the connection ended after ${length} bytes of the answer: ${describeError(cause)}`,
      {
        cause,
      },
    );
  }
  if (length > maxBytes) {
    throw new KubeError(
      "bad-response",
      `Cannot ${action}: the answer is longer than ${maxBytes} bytes; request it in pages`,
    );
  }
  return Buffer.concat(chunks, length).toString("utf8");
}

/** Parses an answer that must be a JSON object. Throws `bad-response`. */
export function parseObject(action: string, text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new KubeError("bad-response", `Cannot ${action}: the answer is not JSON: ${describeError(cause)}`, { cause });
  }
  if (!isRecord(value)) {
    throw new KubeError(
      "bad-response",
      `Cannot ${action}: the answer is ${JSON.stringify(value).slice(0, 60)}, not an object`,
    );
  }
  return value;
}

/** True for a JSON object. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** True for an API object with the metadata that every stored object has. */
export function isObject<T>(value: unknown): value is T {
  const metadata = isRecord(value) ? value["metadata"] : undefined;
  return isRecord(metadata) && typeof metadata["name"] === "string";
}

/** Checks that a value {@link isObject}. Throws `bad-response`. */
export function checkObject<T>(action: string, value: unknown): T {
  if (!isObject<T>(value)) {
    throw new KubeError(
      "bad-response",
      `Cannot ${action}: the answer has no metadata.name, so it is not an API object`,
    );
  }
  return value;
}

/** The error for an answer that is not a success; reads the body for the server's Status. */
export async function errorFromAnswer(
  action: string,
  host: string,
  answer: Pick<Dispatcher.ResponseData, "statusCode" | "headers" | "body">,
  nowMs: number,
): Promise<KubeError> {
  const text = await readText(action, answer, MAX_ERROR_BYTES);
  const status = parseStatus(text);
  return new KubeError(
    codeOf(answer.statusCode, status?.reason),
    `Cannot ${action}: ${status?.message ?? firstLine(text) ?? "no reason given"} (${answer.statusCode}${
      status?.reason === undefined ? "" : ` ${status.reason}`
    } from ${host})`,
    {
      httpStatus: answer.statusCode,
      status,
      retryAfterMs: retryAfter(answer.headers["retry-after"], nowMs) ?? detailsRetry(status),
    },
  );
}

/** The error that a watch's ERROR event carries. */
export function errorFromStatus(action: string, value: unknown): KubeError {
  const status = asStatus(value);
  const httpStatus = status?.code ?? 500;
  return new KubeError(
    codeOf(httpStatus, status?.reason),
    `Cannot ${action}: ${status?.message ?? "the server reported an error without a message"} (${httpStatus})`,
    { httpStatus, status, retryAfterMs: detailsRetry(status) },
  );
}

function parseStatus(text: string): KubeStatus | undefined {
  try {
    return asStatus(JSON.parse(text));
  } catch (error) {
    // A proxy between us and the server answers in HTML or plain text.
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Keeps only fields of the right type: the text comes from outside. */
function asStatus(value: unknown): KubeStatus | undefined {
  if (!isRecord(value) || value["kind"] !== "Status") return undefined;
  const { message, reason, code, details } = value;
  return {
    kind: "Status",
    ...(typeof message === "string" ? { message } : {}),
    ...(typeof reason === "string" ? { reason } : {}),
    ...(typeof code === "number" ? { code } : {}),
    ...(isRecord(details) ? { details } : {}),
  };
}

function detailsRetry(status: KubeStatus | undefined): number | undefined {
  const seconds: unknown = status?.details?.retryAfterSeconds;
  return typeof seconds === "number" && seconds > 0 ? Math.min(seconds * 1000, MAX_RETRY_AFTER_MS) : undefined;
}

/** Parses a Retry-After header, which has seconds or a date (RFC 9110 section 10.2.3). */
function retryAfter(header: string | string[] | undefined, nowMs: number): number | undefined {
  if (typeof header !== "string") return undefined;
  if (/^\d{1,6}$/.test(header)) return Math.min(Number(header) * 1000, MAX_RETRY_AFTER_MS);
  const at = Date.parse(header);
  return Number.isNaN(at) ? undefined : Math.min(Math.max(0, at - nowMs), MAX_RETRY_AFTER_MS);
}

function firstLine(text: string): string | undefined {
  const line = text.trim().split("\n", 1)[0]?.slice(0, 200);
  return line === "" ? undefined : line;
}
