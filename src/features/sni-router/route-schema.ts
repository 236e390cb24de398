import * as v from "valibot";
import { parseHostPort } from "#wire/http-connect";
import { MAX_BACKENDS, normalizePattern } from "./routes.ts";

const text = v.string("must be a text");

const name = v.pipe(
  text,
  v.rawTransform(({ dataset, addIssue, NEVER }) => {
    const pattern = normalizePattern(dataset.value);
    if (pattern !== undefined) return pattern;
    addIssue({ message: `"${dataset.value}" is neither a server name nor *. and a domain` });
    return NEVER;
  }),
);

const backend = v.pipe(
  text,
  v.rawTransform(({ dataset, addIssue, NEVER }) => {
    const target = parseHostPort(dataset.value);
    if (target !== undefined) return target;
    addIssue({ message: `"${dataset.value}" is not HOST:PORT or [IPv6]:PORT` });
    return NEVER;
  }),
);

const backends = v.pipe(
  v.array(backend, "must be a list"),
  v.minLength(1, "must have at least one entry"),
  v.maxLength(MAX_BACKENDS, `must have at most ${MAX_BACKENDS} entries`),
);
const names = v.pipe(v.array(name, "must be a list"), v.minLength(1, "must have at least one entry"));
const proxyProtocol = v.optional(v.boolean("must be true or false"), false);

/** A mapping with these fields and no others; each surplus key and each missing one of `required` is a fault. */
function mapping<const Entries extends v.ObjectEntries>(entries: Entries, required: readonly string[] = []) {
  const known = Object.keys(entries);
  const message = `must be a mapping of ${known.join(", ")}`;
  return v.pipe(
    v.unknown(),
    // The schema accepts a list as an object, so lists are refused here.
    v.check((value) => !Array.isArray(value), message),
    v.looseObject(entries, message),
    v.rawCheck(({ dataset, addIssue }) => {
      // This check also runs on values that are not mappings.
      if (typeof dataset.value !== "object" || dataset.value === null || Array.isArray(dataset.value)) return;
      const value = dataset.value as Readonly<Record<string, unknown>>;
      for (const key of Object.keys(value)) {
        if (known.includes(key)) continue;
        const path = [{ type: "object", origin: "key", input: value, key, value: value[key] }] as const;
        addIssue({ message: `is not a known field; the fields are ${known.join(", ")}`, path: [...path] });
      }
      for (const key of required) {
        if (value[key] === undefined) addIssue({ message: `needs ${key}, a list of at least one` });
      }
    }),
  );
}

const target = { backends: v.optional(backends), proxyProtocol };

/** The file of routes (docs/spec/tunnel.md#9.7). Fields that must be there are optional only to the type: the schema checks them. */
export const routeFile = mapping({
  routes: v.optional(
    v.array(mapping({ names: v.optional(names), ...target }, ["names", "backends"]), "must be a list"),
    [],
  ),
  default: v.optional(mapping(target, ["backends"])),
});
