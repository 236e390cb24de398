import { NftError } from "./errors.ts";
import type { NftBase, NftChange, NftElement, NftFamily, NftSetSpec, NftTable } from "./types.ts";

/**
 * Parses the output of {@link printChanges}, one command a line. It is not a parser of all of nft(8). Throws
 * {@link NftError} `invalid`, naming the line.
 */
export function parseScript(script: string): NftChange[] {
  const changes: NftChange[] = [];
  for (const [at, line] of script.split("\n").entries()) {
    if (line.trim() === "") continue;
    const change = parseLine(line);
    if (change === undefined) {
      throw new NftError(
        "invalid",
        `Cannot read line ${at + 1}: "${line.slice(0, 200)}" is not a command that printChanges writes`,
        { script },
      );
    }
    changes.push(change);
  }
  return changes;
}

const NAME = "[a-zA-Z_][a-zA-Z0-9/_.-]*";
const HEAD = new RegExp(
  `^(?<op>add|create|insert|delete|flush) (?<kind>table|chain|rule|set|map|element) (?<family>ip|ip6|inet|arp|bridge|netdev) (?<table>${NAME})(?: (?<rest>.*))?$`,
);

function parseLine(line: string): NftChange | undefined {
  const head = HEAD.exec(line)?.groups;
  if (head === undefined) return undefined;
  const { op = "", kind = "", family = "", rest = "" } = head;
  const table: NftTable = { family: family as NftFamily, name: head["table"] ?? "" };
  if (kind === "table") return parseTable(op, table, rest);
  const [, object = "", tail = ""] = new RegExp(`^(${NAME})(?: (.*))?$`).exec(rest) ?? [];
  if (object === "") return undefined;
  if (kind === "chain") return parseChain(op, table, object, tail);
  if (kind === "rule") return parseRule(op, table, object, tail);
  if (kind === "element") return parseElementLine(op, table, object, tail);
  return parseSet(op, kind as "set" | "map", table, object, tail);
}

function parseTable(op: string, table: NftTable, rest: string): NftChange | undefined {
  const clauses = parseBlock(rest);
  if (clauses === undefined || op === "insert") return undefined;
  return { op: op as "add", kind: "table", table, ...commentIn(clauses) };
}

function parseChain(op: string, table: NftTable, chain: string, rest: string): NftChange | undefined {
  const clauses = parseBlock(rest);
  if (clauses === undefined || op === "insert") return undefined;
  const hook = clauses.find((clause) => clause.startsWith("type "));
  const policy = /^policy (accept|drop)$/.exec(clauses.find((clause) => clause.startsWith("policy ")) ?? "")?.[1];
  const found = /^type (\S+) hook (\S+)(?: device "([^"]*)")? priority (.+)$/.exec(hook ?? "");
  const [, type = "", hookName = "", device, priority = ""] = found ?? [];
  const base: NftBase = {
    type: type as NftBase["type"],
    hook: hookName as NftBase["hook"],
    priority: /^-?\d+$/.test(priority) ? Number(priority) : priority,
    ...(policy === undefined ? {} : { policy: policy as "accept" | "drop" }),
    ...(device === undefined ? {} : { device }),
  };
  return { op: op as "add", kind: "chain", table, chain, ...(found === null ? {} : { base }), ...commentIn(clauses) };
}

function parseRule(op: string, table: NftTable, chain: string, rest: string): NftChange | undefined {
  if (op === "delete") {
    const handle = /^handle (\d+)$/.exec(rest)?.[1];
    return handle === undefined ? undefined : { op, kind: "rule", table, chain, handle: Number(handle) };
  }
  if ((op !== "add" && op !== "insert") || rest === "") return undefined;
  const [, rule = rest, comment] = /^(.*\S) comment "([^"]*)"$/.exec(rest) ?? [];
  return { op, kind: "rule", table, chain, rule, ...(comment === undefined ? {} : { comment }) };
}

function parseSet(op: string, kind: "set" | "map", table: NftTable, set: string, rest: string): NftChange | undefined {
  if (op === "delete" || op === "flush") return rest === "" ? { op, kind, table, set } : undefined;
  const clauses = parseBlock(rest);
  const [, kindOfType, types] = /^(type|typeof) (.+)$/.exec(clauses?.[0] ?? "") ?? [];
  const colon = types?.indexOf(" : ") ?? -1;
  const [key, value] = colon > 0 ? [types?.slice(0, colon), types?.slice(colon + 3)] : [types, undefined];
  if (clauses === undefined || key === undefined || (op !== "add" && op !== "create")) return undefined;
  const find = (word: string): string | undefined =>
    clauses.find((clause) => clause.startsWith(`${word} `))?.slice(word.length + 1);
  const [flags, timeout, size] = [find("flags"), find("timeout"), find("size")];
  const spec: NftSetSpec = {
    key,
    ...(value === undefined ? {} : { value }),
    ...(kindOfType === "typeof" ? { typeof: true } : {}),
    ...(flags === undefined ? {} : { flags: flags.split(",") as NonNullable<NftSetSpec["flags"]> }),
    ...(timeout === undefined ? {} : { timeoutSeconds: Number.parseInt(timeout, 10) }),
    ...(size === undefined ? {} : { size: Number(size) }),
    ...commentIn(clauses),
  };
  return { op, kind: "set", table, set, spec };
}

function parseElementLine(op: string, table: NftTable, set: string, rest: string): NftChange | undefined {
  const inner = /^\{ (.*) \}$/.exec(rest)?.[1];
  if (inner === undefined || (op !== "add" && op !== "create" && op !== "delete")) return undefined;
  return { op, kind: "element", table, set, elements: splitOutsideQuotes(inner, ", ").map(parseElement) };
}

function parseElement(text: string): NftElement {
  const [left = "", right] = splitOutsideQuotes(text, " : ");
  const pattern = /^(?<key>.*?)(?: timeout (?<timeout>\d+)s)?(?: comment "(?<comment>[^"]*)")?$/;
  const { key = "", timeout, comment } = pattern.exec(left)?.groups ?? {};
  return {
    key: key.split(" . "),
    ...(right === undefined ? {} : { value: right.split(" . ") }),
    ...(comment === undefined ? {} : { comment }),
    ...(timeout === undefined ? {} : { timeoutSeconds: Number(timeout) }),
  };
}

/** The clauses of `{ a ; b ; }`; an empty list if there is no block; `undefined` for any other text. */
function parseBlock(text: string): string[] | undefined {
  if (text === "") return [];
  const inner = /^\{ (.*) ; \}$/.exec(text)?.[1];
  return inner === undefined ? undefined : splitOutsideQuotes(inner, " ; ");
}

function commentIn(clauses: readonly string[]): { comment?: string } {
  for (const clause of clauses) {
    const comment = /^comment "([^"]*)"$/.exec(clause)?.[1];
    if (comment !== undefined) return { comment };
  }
  return {};
}

/** Splits at a separator, not inside double quotes. */
function splitOutsideQuotes(text: string, separator: string): string[] {
  const parts: string[] = [];
  let quoted = false;
  let start = 0;
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === '"') quoted = !quoted;
    if (quoted || !text.startsWith(separator, at)) continue;
    parts.push(text.slice(start, at));
    start = at + separator.length;
    at = start - 1;
  }
  return [...parts, text.slice(start)];
}
