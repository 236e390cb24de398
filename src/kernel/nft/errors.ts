import { ExpectedError } from "#base/errors";

/** The kinds of failures; callers switch over this closed set. */
export type NftErrorCode =
  | "not-found"
  | "already-exists"
  | "busy"
  | "not-permitted"
  | "invalid"
  | "unsupported"
  | "failed";

/** Thrown by {@link Nft}. The tables are unchanged, since nft transactions are atomic. */
export class NftError extends ExpectedError<NftErrorCode> {
  override readonly name = "NftError";
  /** The refused transaction in nft(8) syntax, so that an operator can replay it. */
  readonly script: string;

  constructor(code: NftErrorCode, message: string, init: { readonly script: string; readonly cause?: unknown }) {
    super(code, message, "cause" in init ? { cause: init.cause } : {});
    this.script = init.script;
  }
}

/** Texts of strerror(3) and of nft, with the code for each; the first text that occurs decides. */
const CODES: readonly (readonly [text: string, code: NftErrorCode])[] = [
  ["No such file or directory", "not-found"],
  ["does not exist", "not-found"],
  ["File exists", "already-exists"],
  ["Device or resource busy", "busy"],
  ["Operation not permitted", "not-permitted"],
  ["Permission denied", "not-permitted"],
  ["Operation not supported", "unsupported"],
  ["Invalid argument", "invalid"],
  ["syntax error", "invalid"],
  ["Error: ", "invalid"],
];

/** Translates an error message of libnftables. */
export function fromNftText(text: string, script: string): NftError {
  const code = CODES.find(([phrase]) => text.includes(phrase))?.[1] ?? "failed";
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  // "file:line:col-col: Error: why", the offending line, and a line of carets.
  const why = (lines[0] ?? "no reason given").replace(/^\S*:\d+:\d+(-\d+)?: /, "");
  const where = lines[1]?.trim();
  const at =
    where === undefined || where === "" ? "" : ` in "${where.length > 200 ? `${where.slice(0, 200)}…` : where}"`;
  return new NftError(code, `nft refused the transaction: ${why}${at}`, { script });
}
