import { NftError } from "./errors.ts";
import type { NftBase, NftChain, NftElement, NftFamily, NftRuleCounter, NftSet, NftTable } from "./types.ts";

/** Readers of `nft -j` output (libnftables-json(5)). Each throws {@link NftError} `failed` for malformed output. */

type Json = Readonly<Record<string, unknown>>;

/** Reads the tables. */
export function parseTables(output: unknown): NftTable[] {
  return objects(output, "table").map((table) => ({
    family: text(table["family"]) as NftFamily,
    name: text(table["name"]),
  }));
}

/** Reads the chains. */
export function parseChains(output: unknown): NftChain[] {
  return objects(output, "chain").map((chain) => {
    const base = parseBase(chain);
    const comment = chain["comment"];
    return {
      name: text(chain["name"]),
      ...(base === undefined ? {} : { base }),
      ...(comment === undefined ? {} : { comment: text(comment) }),
    };
  });
}

function parseBase(chain: Json): NftBase | undefined {
  if (chain["hook"] === undefined) return undefined;
  const { policy, dev } = chain;
  return {
    type: text(chain["type"]) as NftBase["type"],
    hook: text(chain["hook"]) as NftBase["hook"],
    priority: Number(chain["prio"]),
    ...(policy === undefined ? {} : { policy: text(policy) as "accept" | "drop" }),
    ...(dev === undefined ? {} : { device: text(dev) }),
  };
}

/** Reads the counters of the rules of one chain. */
export function parseCounters(output: unknown): NftRuleCounter[] {
  return objects(output, "rule").flatMap((rule) => {
    const statement = list(rule["expr"] ?? []).find((one) => isJson(one) && isJson(one["counter"]));
    const counter = isJson(statement) ? statement["counter"] : undefined;
    if (!isJson(counter)) return [];
    return {
      ...(rule["comment"] === undefined ? {} : { comment: text(rule["comment"]) }),
      handle: Number(rule["handle"]),
      packets: Number(counter["packets"]),
      bytes: Number(counter["bytes"]),
    };
  });
}

/** Reads sets and maps, without anonymous ones. */
export function parseSets(output: unknown): NftSet[] {
  return [...objects(output, "set"), ...objects(output, "map")].map((set) => {
    const { map, timeout, size, comment } = set;
    const flags = list(set["flags"] ?? []).map(text) as NonNullable<NftSet["flags"]>;
    return {
      name: text(set["name"]),
      key: list(set["type"]).map(text).join(" . "),
      ...(map === undefined ? {} : { value: list(map).map(text).join(" . ") }),
      ...(flags.length === 0 ? {} : { flags }),
      ...(timeout === undefined ? {} : { timeoutSeconds: Number(timeout) }),
      ...(size === undefined ? {} : { size: Number(size) }),
      ...(comment === undefined ? {} : { comment: text(comment) }),
    };
  });
}

/** Reads the elements of the one set or map that was listed. */
export function parseElements(output: unknown): NftElement[] {
  const [set] = [...objects(output, "set"), ...objects(output, "map")];
  if (set === undefined) throw unreadable("no set in the listing");
  const isMap = set["map"] !== undefined;
  return list(set["elem"] ?? []).map((item) => {
    if (!isMap) return parseKey(item);
    const [key, value] = list(item);
    return { ...parseKey(key), value: parts(value) };
  });
}

/** Reads a key, or `{elem: {val, comment, timeout}}`. */
function parseKey(item: unknown): NftElement {
  const inner = isJson(item) ? item["elem"] : undefined;
  if (!isJson(inner)) return { key: parts(item) };
  const { comment, timeout } = inner;
  return {
    key: parts(inner["val"]),
    ...(comment === undefined ? {} : { comment: text(comment) }),
    ...(timeout === undefined ? {} : { timeoutSeconds: Number(timeout) }),
  };
}

function parts(value: unknown): string[] {
  if (isJson(value) && Array.isArray(value["concat"])) return value["concat"].map(part);
  return [part(value)];
}

/** One part of a key or value, as nft(8) writes it. */
function part(value: unknown): string {
  if (typeof value === "string" || typeof value === "number") return String(value);
  if (!isJson(value)) throw unreadable(`element part ${JSON.stringify(value)}`);
  const [[kind, inner] = ["", undefined]] = Object.entries(value);
  if (kind === "prefix" && isJson(inner)) return `${text(inner["addr"])}/${Number(inner["len"])}`;
  if (kind === "range") return list(inner).map(part).join("-");
  if ((kind === "jump" || kind === "goto") && isJson(inner)) return `${kind} ${text(inner["target"])}`;
  if (inner === null) return kind; // accept, drop, return, continue
  throw unreadable(`element part ${JSON.stringify(value)}`);
}

function objects(output: unknown, kind: string): Json[] {
  const all = isJson(output) ? output["nftables"] : undefined;
  if (!Array.isArray(all)) throw unreadable("no nftables list");
  return all.flatMap((item: unknown) => {
    const found = isJson(item) ? item[kind] : undefined;
    return isJson(found) ? [found] : [];
  });
}

function list(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [value];
}

function text(value: unknown): string {
  if (typeof value === "string" || typeof value === "number") return String(value);
  throw unreadable(`expected a name or number, found ${JSON.stringify(value)}`);
}

function isJson(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function unreadable(what: string): NftError {
  return new NftError("failed", `Cannot read what nft listed: ${what}`, { script: "" });
}
