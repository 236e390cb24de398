import * as v from "valibot";
import type { KernelClaim } from "./claims.ts";
import { EstateError } from "./errors.ts";
import type { ClaimSet } from "./types.ts";

/** The maximum size of a file, bytes. */
export const MAX_ESTATE_BYTES = 65_536;
/** The maximum number of sets in a file; a writer drops the oldest. */
export const MAX_SETS = 32;
const MAX_CLAIMS = 64;
const MAX_FILES = 64;
const MAX_TEXT = 255;

const number = (max: number) => v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(max));
const word = number(0xffff_ffff);
const protocol = number(255);
const span = v.union([
  word,
  v.pipe(
    v.strictTuple([word, word]),
    v.check(([first, last]) => first <= last, "a range ends before it begins"),
    v.readonly(),
  ),
]);
/** Printable ASCII, so that no text can draw on a terminal. */
const text = v.pipe(v.string(), v.maxLength(MAX_TEXT), v.regex(/^[\x20-\x7e]+$/));
const path = v.pipe(v.string(), v.maxLength(1024), v.regex(/^\/[\x20-\x7e]*$/));
const id = v.pipe(v.string(), v.regex(/^[a-z][a-z0-9-]{0,31}$/));
const optional = v.exactOptional;
const list = <Item extends v.BaseSchema<unknown, unknown, v.BaseIssue<unknown>>>(item: Item, max: number) =>
  v.pipe(v.array(item), v.maxLength(max), v.readonly());

const common = { id, in: optional(v.picklist(["client", "router", "pod"])) };
const claim = v.variant("kind", [
  v.strictObject({ ...common, kind: v.literal("routes"), table: span, protocol }),
  v.strictObject({
    ...{ ...common, kind: v.literal("rules"), priority: span, table: span },
    ...{ protocol: optional(protocol), fwmark: optional(word) },
  }),
  v.strictObject({ ...common, kind: v.literal("links"), alias: text }),
  v.strictObject({ ...common, kind: v.literal("link-names"), names: list(text, 16) }),
  v.strictObject({ ...common, kind: v.literal("link-groups"), groups: span }),
  v.strictObject({
    ...{ ...common, kind: v.literal("nft-table"), family: v.picklist(["ip", "ip6", "inet", "arp"]) },
    ...{ name: text, chain: optional(text) },
  }),
  v.strictObject({ ...common, kind: v.literal("comments"), chain: optional(text), comment: text }),
  v.strictObject({
    ...{ ...common, kind: v.literal("address"), address: text, link: text, protocol: optional(protocol) },
  }),
  v.strictObject({ ...common, kind: v.literal("sysctl"), key: text, value: optional(text) }),
  v.strictObject({ ...common, kind: v.literal("mark"), value: word }),
  v.strictObject({ ...common, kind: v.literal("udp-port"), port: number(65_535) }),
]) satisfies v.GenericSchema<unknown, KernelClaim>;

const file = v.strictObject({
  version: v.literal(1),
  program: id,
  sets: list(
    v.strictObject({
      boot: v.pipe(v.string(), v.regex(/^[0-9a-f-]{0,36}$/)),
      netns: v.pipe(v.string(), v.regex(/^[0-9]{1,20}$/)),
      kernel: list(claim, MAX_CLAIMS),
      files: list(path, MAX_FILES),
    }),
    MAX_SETS,
  ),
});

/**
 * The text of a file; only what the schema has is written. The oldest sets are left out if they are too many or too long. Throws
 * {@link EstateError} `invalid` if the first one alone does not fit, or is not of the schema. Pure.
 */
export function encodeSets(program: string, sets: readonly ClaimSet[]): string {
  for (let count = Math.min(sets.length, MAX_SETS); ; count -= 1) {
    const value = { version: 1, program, sets: sets.slice(0, count) };
    const encoded = `${JSON.stringify(value)}\n`;
    if (Buffer.byteLength(encoded) > MAX_ESTATE_BYTES && count > 1) continue;
    decodeSets(program, encoded);
    return encoded;
  }
}

/** The sets of a file, newest first. Throws {@link EstateError} `invalid`. Pure; any text may be given. */
export function decodeSets(program: string, encoded: string): readonly ClaimSet[] {
  const refuse = (why: string, cause?: unknown): never => {
    throw new EstateError("invalid", `the estate of ${program} is invalid: ${why}`, { cause });
  };
  if (Buffer.byteLength(encoded) > MAX_ESTATE_BYTES) return refuse(`it has more than ${MAX_ESTATE_BYTES} bytes`);
  let parsed: unknown;
  try {
    parsed = JSON.parse(encoded);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return refuse("it is not JSON", error);
  }
  const { success, output, issues } = v.safeParse(file, parsed, { abortEarly: true });
  if (!success) return refuse(`${v.getDotPath(issues[0]) ?? "the whole"} is not as the schema says`);
  if (output.program !== program) return refuse(`it is that of ${output.program}`);
  return output.sets;
}
