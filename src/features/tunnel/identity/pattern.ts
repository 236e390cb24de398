/** The one variable of patterns: the name that a pattern takes from a credential, and others put in its place. */
const VARIABLE = "{name}";
/** Maximum length of a pattern, in characters. */
const MAX_PATTERN_LENGTH = 512;
/** Maximum length of a captured name, in characters: that of a DNS name. */
const MAX_NAME_LENGTH = 253;

/**
 * A text with at most one part that is open: `*`, which stands for one or more characters, or `{name}`, which stands for a name and captures it.
 * Matching takes one comparison of each end, whatever the texts.
 */
export interface Pattern {
  readonly prefix: string;
  readonly suffix: string;
  /** Absent: the text has no open part, and `suffix` is empty. */
  readonly open: "any" | "name" | undefined;
}

/** Says why a text is no pattern: a part of a sentence after the field's name. */
export interface PatternFault {
  readonly fault: string;
}

/** The result of a match. */
export type PatternMatch =
  | { readonly kind: "no" }
  /** `name`: what `{name}` stands for; absent for a pattern without it. */
  | { readonly kind: "yes"; readonly name: string | undefined };

const NO: PatternMatch = { kind: "no" };

/** Reads a pattern that credentials are compared with. Pure. */
export function parsePattern(text: string): Pattern | PatternFault {
  const fault = faultOf(text);
  if (fault !== undefined) return { fault };
  const parts = text.split(VARIABLE);
  const stars = text.split("*");
  if (parts.length + stars.length > 3) return { fault: `"${text}" has more than one of ${VARIABLE} and *` };
  const [prefix = "", suffix = ""] = parts.length > 1 ? parts : stars;
  if (parts.length > 1) return { prefix, suffix, open: "name" };
  return { prefix, suffix, open: stars.length > 1 ? "any" : undefined };
}

/** Compares a text with a pattern. Pure. */
export function matchPattern({ prefix, suffix, open }: Pattern, text: string): PatternMatch {
  if (open === undefined) return text === prefix ? { kind: "yes", name: undefined } : NO;
  const end = text.length - suffix.length;
  if (end <= prefix.length || !text.startsWith(prefix) || !text.endsWith(suffix)) return NO;
  if (open === "any") return { kind: "yes", name: undefined };
  const name = text.slice(prefix.length, end);
  return isName(name) ? { kind: "yes", name } : NO;
}

/** Reads a text that may have `{name}` any number of times, and `*` once. Pure. */
export function parseTemplate(text: string, options: { readonly hasName: boolean }): string | PatternFault {
  const fault = faultOf(text);
  if (fault !== undefined) return { fault };
  if (text.split("*").length > 2) return { fault: `"${text}" has more than one *` };
  if (!options.hasName && text.includes(VARIABLE)) {
    return { fault: `"${text}" has ${VARIABLE}, which no field of certificate or token of this rule has` };
  }
  return text;
}

/** Puts the name into a template. Pure: a captured name has neither `*` nor braces. */
export function fillTemplate(template: string, name: string | undefined): Pattern {
  const text = name === undefined ? template : template.replaceAll(VARIABLE, name);
  const [prefix = "", suffix] = text.split("*");
  return { prefix, suffix: suffix ?? "", open: suffix === undefined ? undefined : "any" };
}

function faultOf(text: string): string | undefined {
  if (text === "") return "must not be empty";
  if (text.length > MAX_PATTERN_LENGTH) return `has ${text.length} characters; the maximum is ${MAX_PATTERN_LENGTH}`;
  const rest = text.replaceAll(VARIABLE, "");
  if (rest.includes("{") || rest.includes("}")) return `"${text}" has a brace that is not of ${VARIABLE}`;
  return undefined;
}

/** True if a captured text is a name: letters, digits, `-`, `_` and `.`, a letter or digit first. */
function isName(text: string): boolean {
  if (text.length > MAX_NAME_LENGTH || !isAlphanumeric(text.charCodeAt(0))) return false;
  for (let at = 1; at < text.length; at += 1) {
    if (!isAlphanumeric(text.charCodeAt(at)) && !"-_.".includes(text.charAt(at))) return false;
  }
  return true;
}

function isAlphanumeric(code: number): boolean {
  return (code >= 48 && code <= 57) || (code >= 65 && code <= 90) || (code >= 97 && code <= 122);
}
