import { type Document, isScalar, LineCounter, parseAllDocuments, parseDocument, stringify, visit } from "yaml";
import { readDocument, settingsOf, type YamlDocument, YamlError, type YamlOptions } from "./yaml.ts";

/** The limit on what aliases of aliases repeat. */
const MAX_ALIASED = 1000;

/** A path of keys and indexes. */
export type YamlPath = readonly (string | number)[];

/** One change of a document: a value at a path, whose parent exists or is an absent mapping; or the removal of what is there. */
export type YamlEdit =
  | { readonly path: YamlPath; readonly value: unknown }
  | { readonly path: YamlPath; readonly remove: true };

/** One document of a stream, with its text. */
export interface YamlSource {
  /** The text with its `---` line and comments. The texts of all documents together are the stream. */
  readonly text: string;
  readonly document: YamlDocument | YamlError;
  /** The text after edits; comments and the order of keys stay, except where the document has aliases. Only for documents without faults. */
  edited(edits: readonly YamlEdit[]): string;
}

/** Settings of {@link parseYamlSources}. */
export interface YamlSourceOptions extends YamlOptions {
  /** True if a document that does not parse is tried once more with two spaces for each tab that its lines begin with. Default false. */
  readonly tabs?: boolean;
}

/** Reads a stream of documents as {@link parseYamlStream} does, and keeps their texts. */
export function parseYamlSources(text: string, { tabs = false, ...options }: YamlSourceOptions = {}): YamlSource[] {
  let line = 0;
  return splitStream(text).map((part) => {
    const before = line;
    line += part.split("\n").length - 1;
    const first = readPart(part, before, options);
    if (!tabs || !(first.document instanceof YamlError) || !/^\t/m.test(part)) return first;
    const spaced = part.replaceAll(/^\t+/gm, (all) => "  ".repeat(all.length));
    const second = readPart(spaced, before, options);
    return second.document instanceof YamlError ? first : { ...second, text: part };
  });
}

/** The changed value; nothing of the given one is changed. A path may lead through absent mappings. */
export function applyEdits(value: unknown, edits: readonly YamlEdit[]): unknown {
  // Objects that are the same by an alias become different ones.
  const result: unknown = JSON.parse(JSON.stringify(value));
  for (const edit of edits) {
    let parent = result as Record<string | number, unknown>;
    for (const key of edit.path.slice(0, -1)) {
      parent[key] ??= {};
      parent = parent[key] as typeof parent;
    }
    const last = edit.path.at(-1) ?? "";
    if ("remove" in edit) delete parent[last];
    else parent[last] = edit.value;
  }
  return result;
}

/** A line of `---` begins a document, and one of `...` ends it, wherever it is (YAML 1.2, section 9.1). */
function splitStream(text: string): string[] {
  const parts: string[] = [];
  let start = 0;
  for (const { 0: mark, index } of text.matchAll(/^(?:---(?=[ \t\r\n]|$)|\.\.\.(?=[ \t\r\n]|$).*\n?)/gm)) {
    const end = mark.startsWith("---") ? index : index + mark.length;
    const part = text.slice(start, end);
    // Directives, comments and empty lines before `---` belong to the document that it begins.
    if (!part.split(/[\n\r]/).some((line) => /^[^#%]/.test(line.trimStart()))) continue;
    parts.push(part);
    start = end;
  }
  if (start < text.length) parts.push(text.slice(start));
  return parts;
}

/** Makes a null, as an empty value is, a mapping. */
function fillIn(document: Document, path: YamlPath): void {
  const node = document.getIn(path, true);
  if (isScalar(node) && node.value === null) document.setIn(path, document.createNode({}));
}

/** Throws {@link YamlError} if the aliases of a document would expand it to more than {@link MAX_ALIASED} times its nodes. */
function checkExpansion(document: Document.Parsed): void {
  try {
    document.toJS({ maxAliasCount: MAX_ALIASED });
  } catch (error) {
    if (!(error instanceof ReferenceError)) throw error;
    throw new YamlError([{ line: 1, message: "the aliases repeat too much: write the values in their places" }]);
  }
}

function readPart(text: string, before: number, options: YamlOptions): YamlSource {
  const lines = new LineCounter();
  const settings = settingsOf(options);
  const [parsed] = parseAllDocuments(text, { ...settings, lineCounter: lines }) as Iterable<Document.Parsed>;
  const edited = (edits: readonly YamlEdit[]): string => {
    const again = parseDocument(text, settings);
    const shape = { lineWidth: 0 } as const;
    const aliases: unknown[] = [];
    visit(again, { Alias: (_, alias) => void aliases.push(alias) });
    // Edits of a document with aliases could change other places too.
    if (aliases.length > 0) return `---\n${stringify(applyEdits(again.toJS({ maxAliasCount: -1 }), edits), shape)}`;
    for (const edit of edits) {
      if ("remove" in edit) again.deleteIn(edit.path);
      else {
        for (const depth of edit.path.keys()) fillIn(again, edit.path.slice(0, depth));
        again.setIn(edit.path, again.createNode(edit.value));
      }
    }
    return again.toString(shape);
  };
  if (parsed === undefined) return { text, document: { value: null, lineOf: () => before + 1 }, edited };
  try {
    const { value, lineOf } = readDocument(parsed, lines, options);
    checkExpansion(parsed);
    return { text, document: { value, lineOf: (path) => before + lineOf(path) }, edited };
  } catch (error) {
    if (!(error instanceof YamlError)) throw error;
    const faults = error.faults.map(({ line, message }) => ({ line: before + line, message }));
    return { text, document: new YamlError(faults), edited };
  }
}
