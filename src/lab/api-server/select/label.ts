import { badRequest } from "../errors.ts";
import type { JsonObject } from "../object/json.ts";

/** One term of a label selector. */
export type LabelRequirement =
  | { readonly op: "in" | "notin"; readonly key: string; readonly values: readonly string[] }
  | { readonly op: "exists" | "notexists"; readonly key: string }
  | { readonly op: "gt" | "lt"; readonly key: string; readonly value: number };

/** All terms must hold. */
export type LabelSelector = readonly LabelRequirement[];

/** The bound on terms. */
export const MAX_SELECTOR_TERMS = 1000;

const KEY = /^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const VALUE = /^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/;

/** Returns true if a label key is well formed: optional DNS prefix, `/`, name of at most 63 characters. */
export function isLabelKey(key: string): boolean {
  return KEY.test(key) && key.length <= 317;
}

/** Returns true if a label value is well formed: at most 63 characters, or empty. */
export function isLabelValue(value: string): boolean {
  return VALUE.test(value);
}

/** Parses a selector as apimachinery pkg/labels does. Throws ApiError `BadRequest`. */
export function parseLabelSelector(text: string): LabelSelector {
  const terms = splitTerms(text);
  if (terms.length > MAX_SELECTOR_TERMS) {
    throw badRequest(
      `cannot parse the label selector: found ${terms.length} terms, at most ${MAX_SELECTOR_TERMS} are allowed`,
    );
  }
  return terms.map((term) => parseTerm(term, text));
}

/** Splits at commas outside parentheses. */
function splitTerms(text: string): string[] {
  if (text.trim() === "") return [];
  const terms: string[] = [];
  let depth = 0;
  let start = 0;
  for (let index = 0; index <= text.length; index += 1) {
    const char = text[index];
    if (char === "(") depth += 1;
    else if (char === ")") depth -= 1;
    else if (char === undefined || (char === "," && depth === 0)) {
      terms.push(text.slice(start, index).trim());
      start = index + 1;
    }
  }
  return terms;
}

function parseTerm(term: string, whole: string): LabelRequirement {
  const set = /^(\S+)\s+(in|notin)\s*\(([^()]*)\)$/.exec(term);
  if (set !== null) {
    const [, key = "", op, list = ""] = set;
    const values = list.split(",").map((value) => checkValue(value.trim(), whole));
    return { op: op === "in" ? "in" : "notin", key: checkKey(key, whole), values };
  }
  const pair = /^([^=!<>\s]+)\s*(==|=|!=|<|>)\s*(\S*)$/.exec(term);
  if (pair !== null) {
    const [, key = "", op, value = ""] = pair;
    checkKey(key, whole);
    if (op === "<" || op === ">") {
      if (!/^-?\d+$/.test(value))
        throw fault(whole, `for ${op} the value must be an integer, found ${JSON.stringify(value)}`);
      return { op: op === ">" ? "gt" : "lt", key, value: Number(value) };
    }
    return { op: op === "!=" ? "notin" : "in", key, values: [checkValue(value, whole)] };
  }
  const absent = /^!\s*(\S+)$/.exec(term);
  if (absent?.[1] !== undefined) return { op: "notexists", key: checkKey(absent[1], whole) };
  return { op: "exists", key: checkKey(term, whole) };
}

function checkKey(key: string, whole: string): string {
  if (!isLabelKey(key)) throw fault(whole, `${JSON.stringify(key)} is not a label key`);
  return key;
}

function checkValue(value: string, whole: string): string {
  if (!isLabelValue(value)) throw fault(whole, `${JSON.stringify(value)} is not a label value`);
  return value;
}

function fault(whole: string, why: string): Error {
  return badRequest(`unable to parse requirement: ${why} (in ${JSON.stringify(whole.slice(0, 200))})`);
}

/** Returns true if labels satisfy every term. */
export function matchesLabels(selector: LabelSelector, labels: JsonObject | undefined): boolean {
  return selector.every((term) => holds(term, labels));
}

function holds(term: LabelRequirement, labels: JsonObject | undefined): boolean {
  const found = labels !== undefined && Object.hasOwn(labels, term.key) ? labels[term.key] : undefined;
  const value = typeof found === "string" ? found : undefined;
  switch (term.op) {
    case "in":
      return value !== undefined && term.values.includes(value);
    case "notin":
      return value === undefined || !term.values.includes(value);
    case "exists":
      return value !== undefined;
    case "notexists":
      return value === undefined;
    case "gt":
    case "lt": {
      if (value === undefined || !/^-?\d+$/.test(value)) return false;
      return term.op === "gt" ? Number(value) > term.value : Number(value) < term.value;
    }
  }
}
