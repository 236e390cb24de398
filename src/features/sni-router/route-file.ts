import { readFile, stat } from "node:fs/promises";
import * as v from "valibot";
import {
  type Document,
  isAlias,
  isMap,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type Pair,
  parseDocument,
  visit,
  type YAMLMap,
} from "yaml";
import { SniRouterError } from "./errors.ts";
import { routeFile } from "./route-schema.ts";
import { DEFAULT_ROUTE_NAME, MAX_NAMES, normalizePattern, type RouteSet } from "./routes.ts";

/** A longer file is refused, bytes. */
export const MAX_FILE_BYTES = 1_048_576;
/** Faults that a message lists; further ones are counted. */
const MAX_LISTED_FAULTS = 5;

/** A fault and its offset in the text. */
interface Fault {
  readonly offset: number;
  readonly what: string;
}

/**
 * Reads a file of routes. Throws {@link SniRouterError} `unreadable-routes` or `invalid-routes`; the message is one line with
 * file, line and field of each fault.
 */
export async function readRouteFile(path: string): Promise<RouteSet> {
  let text: string;
  try {
    const { size } = await stat(path);
    if (size > MAX_FILE_BYTES) {
      throw new SniRouterError("unreadable-routes", `${path} has ${size} bytes; at most ${MAX_FILE_BYTES} are read`);
    }
    text = await readFile(path, "utf8");
  } catch (error) {
    if (!(error instanceof Error && "syscall" in error)) throw error;
    throw new SniRouterError("unreadable-routes", `cannot read the routes: ${error.message}`, { cause: error });
  }
  return parseRouteFile(text, path);
}

/**
 * Reads the text of a file of routes; `file` is its name in messages. Throws {@link SniRouterError} `invalid-routes`.
 *
 * ```yaml
 * routes:
 *   - names: [a.example.com, "*.a.example.com"]
 *     backends: ["10.0.0.1:8091", "[2001:db8::1]:8091"]
 *     proxyProtocol: true # default false
 * default: # optional
 *   backends: ["10.0.0.9:8091"]
 * ```
 */
export function parseRouteFile(text: string, file: string): RouteSet {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false, resolveKnownTags: false });
  const syntax = syntaxFaults(document);
  if (syntax.length > 0) throw refused(syntax, { file, lines });
  // Aliases become references to one object: their number is no matter.
  const value: unknown = document.toJS({ maxAliasCount: -1 });
  const result = v.safeParse(routeFile, value);
  const locate = locator(document);
  const faults = nameFaults(value, locate);
  for (const { path = [], message } of result.issues ?? []) {
    const keys = path.map(({ key }) => key);
    faults.push(faultAt(keys, message, locate));
  }
  if (!result.success || faults.length > 0) throw refused(faults, { file, lines });
  const { routes, default: byDefault } = result.output;
  const set = {
    routes: routes.flatMap(({ names = [], backends = [], proxyProtocol }) =>
      names.map((name) => ({ name, backends, proxyProtocol })),
    ),
  };
  if (byDefault === undefined) return set;
  const { backends = [], proxyProtocol } = byDefault;
  return { ...set, defaultRoute: { name: DEFAULT_ROUTE_NAME, backends, proxyProtocol } };
}

/** Faults of YAML itself: without them the document has a value. */
function syntaxFaults(document: Document.Parsed): Fault[] {
  const faults = document.errors.map(({ pos, message }) => ({ offset: pos[0], what: message.replaceAll("\n", " ") }));
  if (faults.length > 0) return faults;
  visit(document, {
    Alias(_, alias) {
      if (alias.resolve(document) !== undefined) return;
      const what = `there is no anchor for *${alias.source}; a name with a * needs quotes`;
      faults.push({ offset: alias.range?.[0] ?? 0, what });
    },
  });
  return faults;
}

function faultAt(keys: readonly unknown[], message: string, locate: Locate): Fault {
  const path = keys.reduce<string>(
    (at, key) => (typeof key === "number" ? `${at}[${key}]` : at === "" ? String(key) : `${at}.${String(key)}`),
    "",
  );
  return { offset: locate(keys), what: `${path === "" ? "the file" : path} ${message}` };
}

/** The offset of the value at a path, or of the nearest node above it. */
type Locate = (keys: readonly unknown[]) => number;

function locator(document: Document.Parsed): Locate {
  // A mapping may have many surplus keys: each map is indexed once.
  const indexes = new Map<YAMLMap, Map<string, Pair>>();
  const pairOf = (map: YAMLMap, key: string): Pair | undefined => {
    const index =
      indexes.get(map) ?? new Map(map.items.map((pair) => [isScalar(pair.key) ? String(pair.key.value) : "", pair]));
    indexes.set(map, index);
    return index.get(key);
  };
  return (keys) => {
    let node: Node | null | undefined = document.contents;
    let offset = node?.range?.[0] ?? 0;
    for (const key of keys) {
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

/** Faults of names together: one that comes twice, and one too many. The value may be of any shape. */
function nameFaults(value: unknown, locate: Locate): Fault[] {
  const seen = new Set<string>();
  return listOf(value, "routes").flatMap((route, at) =>
    listOf(route, "names").flatMap((text, index): Fault[] => {
      const name = typeof text === "string" ? normalizePattern(text) : undefined;
      if (name === undefined) return [];
      const fault = (what: string): Fault[] => [faultAt(["routes", at, "names", index], what, locate)];
      if (seen.has(name)) return fault(`${name} has a route already`);
      if (seen.size === MAX_NAMES) return fault(`is one name too many: at most ${MAX_NAMES} are possible`);
      seen.add(name);
      return [];
    }),
  );
}

function listOf(value: unknown, key: string): readonly unknown[] {
  const list = typeof value === "object" && value !== null && key in value ? Reflect.get(value, key) : undefined;
  return Array.isArray(list) ? list : [];
}

function refused(faults: readonly Fault[], at: { readonly file: string; readonly lines: LineCounter }): SniRouterError {
  const texts = faults
    .toSorted((a, b) => a.offset - b.offset)
    .map(({ offset, what }) => `${at.file}:${at.lines.linePos(offset).line}: ${what}`);
  const more = texts.length - MAX_LISTED_FAULTS;
  const listed = texts.slice(0, MAX_LISTED_FAULTS).join("; ");
  return new SniRouterError("invalid-routes", more > 0 ? `${listed}; and ${more} more` : listed);
}
