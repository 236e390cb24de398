import type { YamlDocument, YamlFault } from "./yaml.ts";

/** Faults that are listed; the others are counted. */
const MAX_LISTED = 5;

/** Pure: a fault of the value at these keys, which the message names as `a.b[0]`. */
export function faultAt(keys: readonly unknown[], message: string, document: YamlDocument): YamlFault {
  const path = keys.reduce<string>(
    (at, key) => (typeof key === "number" ? `${at}[${key}]` : at === "" ? String(key) : `${at}.${String(key)}`),
    "",
  );
  return { line: document.lineOf(keys), message: `${path === "" ? "the file" : path} ${message}` };
}

/** Pure: the faults of a file in one line, in the order of its lines: `FILE:LINE: MESSAGE; ...`. */
export function faultsText(faults: readonly YamlFault[], file: string): string {
  const texts = faults.toSorted((a, b) => a.line - b.line).map(({ line, message }) => `${file}:${line}: ${message}`);
  const more = texts.length - MAX_LISTED;
  const listed = texts.slice(0, MAX_LISTED).join("; ");
  return more > 0 ? `${listed}; and ${more} other faults` : listed;
}
