import { NftError } from "./errors.ts";
import type { NftBase, NftChange, NftElement, NftSetSpec, NftTable } from "./types.ts";

/** NFT_NAME_MAXLEN without the NUL. */
const MAX_NAME_BYTES = 255;
/** NFTNL_UDATA_COMMENT_MAXLEN without the NUL. */
const MAX_COMMENT_BYTES = 127;

/** Prints a transaction in nft(8) syntax, one command a line. Throws {@link NftError} `invalid` for unprintable names and texts. */
export function printChanges(changes: Iterable<NftChange>): string {
  let script = "";
  for (const change of changes) script += `${printChange(change)}\n`;
  return script;
}

/** Prints one command. Throws {@link NftError} `invalid`. */
export function printChange(change: NftChange): string {
  const at = printTable(change.table);
  switch (change.kind) {
    case "table":
      return `${change.op} table ${at}${block(commentClause(change.comment))}`;
    case "chain":
      return `${change.op} chain ${at} ${name(change.chain)}${block(...baseClauses(change.base), ...commentClause(change.comment))}`;
    case "rule":
      if (change.op === "delete") return `delete rule ${at} ${name(change.chain)} handle ${change.handle}`;
      return `${change.op} rule ${at} ${name(change.chain)} ${oneLine(change.rule)}${commentWord(change.comment)}`;
    case "element": {
      const elements = change.elements.map((element) => printElement(element, change.op)).join(", ");
      return `${change.op} element ${at} ${name(change.set)} { ${elements} }`;
    }
    case "set":
    case "map":
      if (!("spec" in change)) return `${change.op} ${change.kind} ${at} ${name(change.set)}`;
      return `${change.op} ${change.spec.value === undefined ? "set" : "map"} ${at} ${name(change.set)}${setBlock(change.spec)}`;
  }
}

/** `ip isthmus-egress`. */
export function printTable(table: NftTable): string {
  return `${table.family} ${name(table.name)}`;
}

function printElement(element: NftElement, op: string): string {
  const key = element.key.map(oneLine).join(" . ");
  if (op === "delete") return key;
  const timeout = element.timeoutSeconds === undefined ? "" : ` timeout ${element.timeoutSeconds}s`;
  const value = element.value === undefined ? "" : ` : ${element.value.map(oneLine).join(" . ")}`;
  return `${key}${timeout}${commentWord(element.comment)}${value}`;
}

function setBlock(spec: NftSetSpec): string {
  const clauses = [
    `${spec.typeof === true ? "typeof" : "type"} ${oneLine(spec.key)}${spec.value === undefined ? "" : ` : ${oneLine(spec.value)}`}`,
  ];
  if (spec.flags !== undefined && spec.flags.length > 0) clauses.push(`flags ${spec.flags.join(",")}`);
  if (spec.timeoutSeconds !== undefined) clauses.push(`timeout ${spec.timeoutSeconds}s`);
  if (spec.size !== undefined) clauses.push(`size ${spec.size}`);
  return block(clauses, commentClause(spec.comment));
}

function baseClauses(base: NftBase | undefined): string[][] {
  if (base === undefined) return [];
  const device = base.device === undefined ? "" : ` device "${name(base.device)}"`;
  const hook = `type ${base.type} hook ${base.hook}${device} priority ${oneLine(String(base.priority))}`;
  return [[hook, ...(base.policy === undefined ? [] : [`policy ${base.policy}`])]];
}

function block(...clauses: readonly (string | readonly string[])[]): string {
  const flat = clauses.flat();
  return flat.length === 0 ? "" : ` { ${flat.map((clause) => `${clause} ;`).join(" ")} }`;
}

function commentClause(comment: string | undefined): string[] {
  return comment === undefined ? [] : [`comment ${quoted(comment)}`];
}

function commentWord(comment: string | undefined): string {
  return comment === undefined ? "" : ` comment ${quoted(comment)}`;
}

function quoted(comment: string): string {
  if (Buffer.byteLength(comment) > MAX_COMMENT_BYTES || /["\n\r\0\\]/.test(comment)) {
    throw refusal(
      `comment ${JSON.stringify(comment)} must have at most ${MAX_COMMENT_BYTES} bytes, no quote, backslash or line end`,
    );
  }
  return `"${comment}"`;
}

/** nft(8) identifiers: a letter or underscore, then letters, digits and `/\_.`, and inside also `-`. */
function name(text: string): string {
  if (text.length <= MAX_NAME_BYTES && /^[a-zA-Z_][a-zA-Z0-9/_.-]*$/.test(text)) return text;
  throw refusal(
    `"${text}" cannot be a name in nft: start with a letter; then use letters, digits, "/", "_", "." or "-"`,
  );
}

/** Checks that text stays one command: a line end or semicolon would begin another. */
function oneLine(text: string): string {
  if (text !== "" && !/[\n\r\0;]/.test(text)) return text;
  throw refusal(`${JSON.stringify(text)} must be one line without semicolons`);
}

function refusal(message: string): NftError {
  return new NftError("invalid", `Cannot write the transaction: ${message}`, { script: "" });
}
