import type { BaseIssue } from "valibot";
import { IpAddress } from "#base/ip";

/** Pure: the text of a fault for people: `uplinks[0].cost: must be a cost from 0 to 255, not 300`. */
export function describeIssue(issue: BaseIssue<unknown>): string {
  const path = (issue.path ?? []).reduce(
    (at, { key }) => (typeof key === "number" ? `${at}[${key}]` : at === "" ? String(key) : `${at}.${String(key)}`),
    "",
  );
  const what = sentence(issue);
  return path === "" ? `the file ${what}` : `${path}: ${what}`;
}

/** Pure: whether the fault is a key that the schema does not have. */
export function isSurplusKey({ type, expected }: Pick<BaseIssue<unknown>, "type" | "expected">): boolean {
  return type === "strict_object" && expected === "never";
}

function sentence(issue: BaseIssue<unknown>): string {
  if (issue.type === "strict_object") {
    return isSurplusKey(issue) ? "is not a known key; remove it or correct its spelling" : "is missing";
  }
  if (issue.received === "undefined") return "is missing";
  const text = issue.message.startsWith("Invalid ") ? `must be ${issue.expected}` : issue.message;
  return `${text}, not ${shown(issue.input)}`;
}

/** Maximum number of characters of a wrong value that a message shows. */
const MAX_SHOWN = 60;

function shown(value: unknown): string {
  if (value === null || value === undefined) return "empty";
  if (Array.isArray(value)) return "a list";
  if (value instanceof IpAddress) return `"${value}"`;
  if (typeof value === "object") return "a mapping";
  const text = JSON.stringify(value) ?? String(value);
  return text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text;
}
