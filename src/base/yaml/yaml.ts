import {
  type Document,
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  type Node,
  type Pair,
  parseAllDocuments,
  parseDocument,
  type Tags,
  visit,
  type YAMLMap,
} from "yaml";
import { ExpectedError } from "#base/errors";

/** The most lists and mappings that begin in one line of a plain text, or that are in each other within brackets. */
const MAX_NESTING = 32;
/** The token before the text of an unquoted scalar (a constant of the lexer that the package does not export as a value). */
const SCALAR_FOLLOWS = "\u001f";

export interface YamlFault {
  /** The number of the line, from 1. */
  readonly line: number;
  readonly message: string;
}

/** Thrown by {@link parseYaml}; its message is that of the first fault, with its line. */
export class YamlError extends ExpectedError<"invalid"> {
  override readonly name = "YamlError";
  readonly faults: readonly YamlFault[];

  constructor(faults: readonly YamlFault[]) {
    const [first] = faults;
    super("invalid", first === undefined ? "not YAML" : `line ${first.line}: ${first.message}`);
    this.faults = faults;
  }
}

export interface YamlDocument {
  /** The parsed value; `null` for an empty text. */
  readonly value: unknown;
  /** The line, from 1, of the value at a path of keys and indexes, or of the nearest value above it. */
  lineOf(path: readonly unknown[]): number;
}

export interface YamlOptions {
  /** True if anchors and aliases are allowed. Default false: a short text with aliases can expand to a value of any size. */
  readonly aliases?: boolean;
  /** True if anchors, tags, directives and a second document are faults, so that a text has the meaning that it has in JSON or in the core schema of YAML 1.2. Default false. */
  readonly plain?: boolean;
  /** "1.1": plain `yes`, `no`, `on` and `off` are booleans, as for Kubernetes' own reader (sigs.k8s.io/yaml), and times are texts. Default "1.2". */
  readonly version?: "1.1" | "1.2";
  /** True if a key that comes twice in a mapping is a fault. Default true. With false, the last value counts. */
  readonly uniqueKeys?: boolean;
}

/** Reads one document. Throws {@link YamlError} with every fault of its syntax. */
export function parseYaml(text: string, options: YamlOptions = {}): YamlDocument {
  const lines = new LineCounter();
  if (options.plain === true) {
    checkNesting(text);
    return readOnlyDocument(text, lines, options);
  }
  return readDocument(parseDocument(text, { ...settingsOf(options), lineCounter: lines }), lines, options);
}

/**
 * The parser and what reads its result are recursive. Levels that cost a character each are counted before; levels that cost a line with
 * more indentation each need a text whose length is the square of their number.
 */
function checkNesting(text: string): void {
  let [line, inFlow, inLine, isScalar] = [1, 0, 0, false];
  for (const token of new Lexer().lex(text)) {
    const wasScalar = isScalar;
    isScalar = token === SCALAR_FOLLOWS;
    if (!wasScalar && (token === "[" || token === "{")) inFlow += 1;
    else if (!wasScalar && (token === "]" || token === "}")) inFlow -= 1;
    else if (!wasScalar && inFlow <= 0 && (token === "-" || token === "?" || token === ":")) inLine += 1;
    if (inFlow > MAX_NESTING || inLine > MAX_NESTING) {
      throw new YamlError([{ line, message: `there are more than ${MAX_NESTING} lists and mappings in each other` }]);
    }
    const lineEnds = token.split("\n").length - 1;
    line += lineEnds;
    if (lineEnds > 0) inLine = 0;
  }
}

/** `parseDocument` ignores further documents when it may not log. */
function readOnlyDocument(text: string, lines: LineCounter, options: YamlOptions): YamlDocument {
  const [first, second] = parseAllDocuments(text, {
    ...settingsOf(options),
    lineCounter: lines,
  }) as Iterable<Document.Parsed>;
  if (second !== undefined) {
    const line = Math.max(1, lines.linePos(second.range[0]).line);
    throw new YamlError([{ line, message: "there are several documents, and only one is expected" }]);
  }
  return first === undefined ? { value: null, lineOf: () => 1 } : readDocument(first, lines, options);
}

/**
 * Reads a stream of documents, in their order; lines are those of the whole text. A document with faults becomes its {@link YamlError}, and
 * the other documents are read all the same.
 */
export function parseYamlStream(text: string, options: YamlOptions = {}): (YamlDocument | YamlError)[] {
  const lines = new LineCounter();
  const documents = parseAllDocuments(text, { ...settingsOf(options), lineCounter: lines });
  return Array.from(documents as Iterable<Document.Parsed>, (document) => {
    try {
      return readDocument(document, lines, options);
    } catch (error) {
      if (error instanceof YamlError) return error;
      throw error;
    }
  });
}

/** The settings of the parser. */
export function settingsOf({ uniqueKeys = true, version = "1.2" }: YamlOptions) {
  return {
    ...(version === "1.1" ? ({ version, schema: "yaml-1.1", customTags: booleansAlone } as const) : {}),
    prettyErrors: false,
    resolveKnownTags: false,
    stringKeys: true,
    uniqueKeys,
    logLevel: "silent",
  } as const;
}

/** The tags of YAML 1.1 but those of times and of numbers to the base 60, which go-yaml takes for texts, and of `<<`, at which the package throws errors of its own. */
function booleansAlone(tags: Tags): Tags {
  const without = new Set(["tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:merge"]);
  return tags.filter(
    (tag) => typeof tag === "string" || !(without.has(tag.tag) || ("format" in tag && tag.format === "TIME")),
  );
}

/** The value of a parsed document. Throws {@link YamlError}. */
export function readDocument(
  document: Document.Parsed,
  lines: LineCounter,
  { aliases = false, plain = false }: YamlOptions,
): YamlDocument {
  const lineAt = (offset: number): number => Math.max(1, lines.linePos(offset).line);
  const faults = document.errors.map(({ pos, message }) => ({
    line: lineAt(pos[0]),
    message: message.replaceAll("\n", " "),
  }));
  if (faults.length === 0) faults.push(...aliasFaults(document, aliases, lineAt));
  if (faults.length === 0 && plain) faults.push(...decorationFaults(document, lineAt));
  if (faults.length > 0) throw new YamlError(faults);
  const offsetOf = locator(document);
  return {
    // Aliases become references to one object, so their number needs no limit.
    value: document.toJS({ maxAliasCount: -1 }),
    lineOf: (path) => lineAt(offsetOf(path)),
  };
}

function aliasFaults(
  document: Document.Parsed,
  areAllowed: boolean,
  lineAt: (offset: number) => number,
): readonly YamlFault[] {
  const faults: YamlFault[] = [];
  visit(document, {
    Alias(_, alias) {
      const line = lineAt(alias.range?.[0] ?? 0);
      if (!areAllowed)
        faults.push({ line, message: "anchors and aliases are not supported: write the value in each place" });
      else if (alias.resolve(document) === undefined)
        faults.push({ line, message: `there is no anchor for *${alias.source}; a name with a * needs quotes` });
    },
  });
  return faults;
}

function decorationFaults(document: Document.Parsed, lineAt: (offset: number) => number): readonly YamlFault[] {
  const faults: YamlFault[] = [];
  const { directives } = document;
  if (directives.yaml.explicit === true || Object.keys(directives.tags).some((handle) => handle !== "!!")) {
    faults.push({ line: lineAt(0), message: "directives are not supported" });
  }
  visit(document, {
    Node(_, node) {
      if (isAlias(node)) return;
      const line = lineAt(node.range?.[0] ?? 0);
      if (node.anchor !== undefined)
        faults.push({ line, message: `anchors are not supported: remove &${node.anchor}` });
      if (node.tag !== undefined) faults.push({ line, message: `tags are not supported: remove ${node.tag}` });
    },
  });
  return faults;
}

/** The offset of the value at a path, or of the nearest node above it. */
function locator(document: Document.Parsed): (path: readonly unknown[]) => number {
  // A mapping may have many keys: each one is indexed once.
  const indexes = new Map<YAMLMap, Map<string, Pair>>();
  const pairOf = (map: YAMLMap, key: string): Pair | undefined => {
    const index =
      indexes.get(map) ?? new Map(map.items.map((pair) => [isScalar(pair.key) ? String(pair.key.value) : "", pair]));
    indexes.set(map, index);
    return index.get(key);
  };
  return (path) => {
    let node: Node | null | undefined = document.contents;
    let offset = node?.range?.[0] ?? 0;
    for (const key of path) {
      const parent: Node | null | undefined = isAlias(node) ? node.resolve(document) : node;
      if (isMap(parent)) {
        const pair: Pair | undefined = pairOf(parent, String(key));
        node = [pair?.value, pair?.key].find(isNode);
      } else node = isSeq(parent) ? [parent.items[Number(key)]].find(isNode) : undefined;
      if (node?.range === undefined || node.range === null) break;
      offset = node.range[0];
    }
    return offset;
  };
}
