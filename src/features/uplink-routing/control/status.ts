import * as v from "valibot";
import { ExpectedError } from "#base/errors";
import { hasError, parseInstant, type UplinkStatus } from "#base/uplink-model";

export type StatusErrorCode = "invalid";

/** A reported status is malformed. Nothing was changed. */
export class StatusError extends ExpectedError<StatusErrorCode> {
  override readonly name = "StatusError";
}

const MAX_TEXT = 1024;
/** The last millisecond that a Date can hold. */
const MAX_TIME = 8.64e15;

const text = v.pipe(v.string(), v.maxLength(MAX_TEXT));
const instant = v.nullish(
  v.union([
    v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(MAX_TIME)),
    v.pipe(
      v.string(),
      v.transform((value) => (value === "" ? null : parseInstant(value))),
      v.check((value) => value !== undefined),
    ),
  ]),
);
const document = v.pipe(
  // valibot would accept a list as an object.
  v.custom<Record<string, unknown>>((value) => typeof value === "object" && value !== null && !Array.isArray(value)),
  v.strictObject({
    lastFailed: instant,
    lastSucceeded: instant,
    lastError: v.nullish(text),
    lastWarning: v.nullish(text),
  }),
);

/**
 * Pure: `{lastFailed, lastSucceeded, lastError, lastWarning}`; times are RFC 3339, milliseconds since 1970, empty or null. A
 * failure needs a text (docs/spec/uplink-proxy.md#2.3). Throws {@link StatusError}.
 */
export function parseStatus(source: string): UplinkStatus {
  const result = v.safeParse(document, parseJson(source));
  if (!result.success) {
    const paths = result.issues.map(({ path }) => String(path?.[0]?.key ?? "the body")).slice(0, 4);
    const fields = "lastFailed and lastSucceeded (a time or null), lastError and lastWarning (a text)";
    throw new StatusError("invalid", `${[...new Set(paths)].join(", ")}: malformed; the fields are ${fields}`);
  }
  const { lastFailed, lastSucceeded, lastError, lastWarning } = result.output;
  const status: UplinkStatus = {
    ...(isTime(lastFailed) ? { lastFailed } : {}),
    ...(isTime(lastSucceeded) ? { lastSucceeded } : {}),
    lastError: lastError ?? "",
    lastWarning: lastWarning ?? "",
  };
  if (hasError(status) && status.lastError === "") {
    throw new StatusError("invalid", "lastError: a failure needs a text with the reason");
  }
  return status;
}

/** Returns true if the value is a time. In several languages the zero time is 1970 or earlier; such a value means never. */
function isTime(value: number | null | undefined): value is number {
  return typeof value === "number" && value > 0;
}

function parseJson(source: string): unknown {
  try {
    return JSON.parse(source);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new StatusError("invalid", `the body is not JSON: ${error.message}`, { cause: error });
  }
}
