import { readFile, stat } from "node:fs/promises";
import { type Document, isAlias, isMap, isScalar, isSeq, LineCounter, type Node, parseDocument } from "yaml";
import { type HostPort, parseHostPort } from "#wire/http-connect";
import { SniRouterError } from "./errors.ts";
import { DEFAULT_ROUTE_NAME, MAX_BACKENDS, MAX_NAMES, normalizePattern, type Route, type RouteSet } from "./routes.ts";

/** A longer file is refused, bytes. */
export const MAX_FILE_BYTES = 1_048_576;
/** So many faults are told; the rest are counted. */
const MAX_FAULTS_TOLD = 5;

/**
 * Reads a file of routes. Throws {@link SniRouterError} `unreadable-routes` or `invalid-routes`; the message is one line and
 * says file, line and field of each fault.
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
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const faults: string[] = [];
  const told = (offset: number, what: string): void => {
    faults.push(`${file}:${lines.linePos(offset).line}: ${what}`);
  };
  for (const error of document.errors) told(error.pos[0], error.message.replaceAll("\n", " "));
  const reader = faults.length === 0 ? new RouteReader(document, told) : undefined;
  const set = reader?.read() ?? { routes: [] };
  if (faults.length > 0) {
    const more = faults.length - MAX_FAULTS_TOLD;
    const shown = faults.slice(0, MAX_FAULTS_TOLD).join("; ");
    throw new SniRouterError("invalid-routes", more > 0 ? `${shown}; and ${more} more` : shown);
  }
  return set;
}

/** A value of the file and how messages call it. */
interface Place {
  readonly node: Node | null;
  readonly path: string;
}

type Fields = ReadonlyMap<string, Place>;

class RouteReader {
  readonly #document: Document;
  readonly #told: (offset: number, what: string) => void;
  readonly #names = new Set<string>();

  constructor(document: Document, told: (offset: number, what: string) => void) {
    this.#document = document;
    this.#told = told;
  }

  read(): RouteSet {
    const root = this.#map({ node: this.#document.contents, path: "" }, ["routes", "default"]);
    const routes = this.#list(root.get("routes")).flatMap((place) => this.#namedRoutes(place));
    const byDefault = root.get(DEFAULT_ROUTE_NAME);
    if (byDefault === undefined) return { routes };
    const fields = this.#map(byDefault, ["backends", "proxyProtocol"]);
    return { routes, defaultRoute: this.#route(DEFAULT_ROUTE_NAME, byDefault, fields) };
  }

  #namedRoutes(place: Place): Route[] {
    const fields = this.#map(place, ["names", "backends", "proxyProtocol"]);
    const places = this.#required(place, fields, "names");
    const names = places.slice(0, MAX_NAMES).flatMap((at) => this.#name(at));
    const { backends, proxyProtocol } = this.#route("", place, fields);
    return names.map((name) => ({ name, backends, proxyProtocol }));
  }

  #route(name: string, place: Place, fields: Fields): Route {
    const places = this.#required(place, fields, "backends");
    if (places.length > MAX_BACKENDS) this.#fault(place, `at most ${MAX_BACKENDS} backends can be`);
    const backends = places.slice(0, MAX_BACKENDS).flatMap((at) => this.#backend(at));
    return { name, backends, proxyProtocol: this.#switch(fields.get("proxyProtocol")) };
  }

  #name(place: Place): string[] {
    const text = this.#text(place);
    if (text === undefined) return [];
    const name = normalizePattern(text);
    if (name === undefined) this.#fault(place, `"${text}" is neither a server name nor *. and a domain`);
    else if (this.#names.has(name)) this.#fault(place, `${name} has a route already`);
    else if (this.#names.size === MAX_NAMES) this.#fault(place, `is one name too many: at most ${MAX_NAMES} can be`);
    else return [this.#remember(name)];
    return [];
  }

  #remember(name: string): string {
    this.#names.add(name);
    return name;
  }

  #backend(place: Place): HostPort[] {
    const text = this.#text(place);
    if (text === undefined) return [];
    const backend = parseHostPort(text);
    if (backend === undefined) this.#fault(place, `"${text}" is not HOST:PORT or [IPv6]:PORT`);
    return backend === undefined ? [] : [backend];
  }

  #required(place: Place, fields: Fields, name: string): readonly Place[] {
    const field = fields.get(name);
    const items = this.#list(field);
    // A value that is no list, or no mapping, has its own fault.
    if (field === undefined && isMap(this.#resolved(place)))
      this.#fault(place, `needs ${name}, a list of at least one`);
    if (field !== undefined && items.length === 0 && isSeq(this.#resolved(field))) {
      this.#fault(field, "must have at least one entry");
    }
    return items;
  }

  #switch(place: Place | undefined): boolean {
    const node = place === undefined ? undefined : this.#resolved(place);
    if (place === undefined || (isScalar(node) && typeof node.value === "boolean")) {
      return isScalar(node) && node.value === true;
    }
    this.#fault(place, "must be true or false");
    return false;
  }

  #text(place: Place): string | undefined {
    const node = this.#resolved(place);
    if (isScalar(node) && typeof node.value === "string") return node.value;
    if (isAlias(place.node) && node === undefined) {
      this.#fault(place, `there is no anchor for *${place.node.source}; a name with a * needs quotes`);
    } else {
      this.#fault(place, "must be a text");
    }
    return undefined;
  }

  #list(place: Place | undefined): readonly Place[] {
    if (place === undefined) return [];
    const node = this.#resolved(place);
    if (isSeq(node)) return node.items.map((item, at) => ({ node: item as Node | null, path: `${place.path}[${at}]` }));
    this.#fault(place, "must be a list");
    return [];
  }

  #map(place: Place, known: readonly string[]): Fields {
    const node = this.#resolved(place);
    const fields = new Map<string, Place>();
    if (!isMap(node)) {
      this.#fault(place, `must be a mapping of ${known.join(", ")}`);
      return fields;
    }
    for (const { key, value } of node.items) {
      const name = isScalar(key) ? String(key.value) : "";
      const path = place.path === "" ? name : `${place.path}.${name}`;
      const at: Place = { node: (value ?? key) as Node | null, path };
      if (known.includes(name)) fields.set(name, at);
      else this.#fault({ node: key as Node | null, path }, `is no field here; there are ${known.join(", ")}`);
    }
    return fields;
  }

  #resolved(place: Place): Node | null | undefined {
    return isAlias(place.node) ? place.node.resolve(this.#document) : place.node;
  }

  #fault(place: Place, what: string): void {
    this.#told(place.node?.range?.[0] ?? 0, place.path === "" ? `the file ${what}` : `${place.path} ${what}`);
  }
}
