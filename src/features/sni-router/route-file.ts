import { readFile, stat } from "node:fs/promises";
import * as v from "valibot";
import { faultAt, faultsText, parseYaml, type YamlDocument, YamlError, type YamlFault } from "#base/yaml";
import { SniRouterError } from "./errors.ts";
import { routeFile } from "./route-schema.ts";
import { DEFAULT_ROUTE_NAME, MAX_NAMES, normalizePattern, type RouteSet } from "./routes.ts";

/** Maximum size of a file, in bytes. A larger file is refused. */
export const MAX_FILE_BYTES = 1_048_576;

/**
 * Reads a file of routes. Throws {@link SniRouterError} `unreadable-routes` or `invalid-routes`; the message is one line with
 * file, line and field of each fault.
 */
export async function readRouteFile(path: string): Promise<RouteSet> {
  let text: string;
  try {
    const { size } = await stat(path);
    if (size > MAX_FILE_BYTES) {
      throw new SniRouterError("unreadable-routes", `${path} has ${size} bytes; the maximum is ${MAX_FILE_BYTES}`);
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
  const document = documentOf(text, file);
  const { value } = document;
  const result = v.safeParse(routeFile, value);
  const faults = nameFaults(value, document);
  for (const { path = [], message } of result.issues ?? []) {
    const keys = path.map(({ key }) => key);
    faults.push(faultAt(keys, message, document));
  }
  if (!result.success || faults.length > 0) throw refused(faults, file);
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

function documentOf(text: string, file: string): YamlDocument {
  try {
    return parseYaml(text, { aliases: true });
  } catch (error) {
    if (!(error instanceof YamlError)) throw error;
    throw refused(error.faults, file);
  }
}

/** Faults that only several names together show: a name that comes twice, and a name too many. The value may be of any shape. */
function nameFaults(value: unknown, document: YamlDocument): YamlFault[] {
  const seen = new Set<string>();
  return listOf(value, "routes").flatMap((route, at) =>
    listOf(route, "names").flatMap((text, index): YamlFault[] => {
      const name = typeof text === "string" ? normalizePattern(text) : undefined;
      if (name === undefined) return [];
      const fault = (what: string): YamlFault[] => [faultAt(["routes", at, "names", index], what, document)];
      if (seen.has(name)) return fault(`${name} already has a route`);
      if (seen.size === MAX_NAMES) return fault(`exceeds the number of names: the maximum is ${MAX_NAMES}`);
      seen.add(name);
      return [];
    }),
  );
}

function listOf(value: unknown, key: string): readonly unknown[] {
  const list = typeof value === "object" && value !== null && key in value ? Reflect.get(value, key) : undefined;
  return Array.isArray(list) ? list : [];
}

function refused(faults: readonly YamlFault[], file: string): SniRouterError {
  return new SniRouterError("invalid-routes", faultsText(faults, file));
}
