import { badRequest } from "../errors.ts";
import { at, type JsonObject } from "../object/json.ts";

/** One term of a field selector. */
export interface FieldRequirement {
  readonly field: string;
  readonly equal: boolean;
  readonly value: string;
}

/** All terms must hold. */
export type FieldSelector = readonly FieldRequirement[];

/** Parses a selector as apimachinery pkg/fields does: `a=b,c!=d`, with `\` escaping `,`, `=` and itself. Throws ApiError `BadRequest`. */
export function parseFieldSelector(text: string): FieldSelector {
  return splitEscaped(text)
    .filter((term) => term !== "")
    .map((term) => {
      const match = /^([^=!\\]+)(!=|==|=)([\s\S]*)$/.exec(term);
      if (match === null) {
        throw badRequest(
          `invalid field selector: ${JSON.stringify(term.slice(0, 200))}; can't understand, want field=value`,
        );
      }
      const [, field = "", op, value = ""] = match;
      return { field: field.trim(), equal: op !== "!=", value: unescapeValue(value, term) };
    });
}

function splitEscaped(text: string): string[] {
  const terms: string[] = [];
  let start = 0;
  for (let index = 0; index < text.length; index += 1) {
    if (text[index] === "\\") index += 1;
    else if (text[index] === ",") {
      terms.push(text.slice(start, index));
      start = index + 1;
    }
  }
  terms.push(text.slice(start));
  return terms;
}

function unescapeValue(value: string, term: string): string {
  if (/(?:^|[^\\])(?:\\\\)*=/.test(value) || /(?:^|[^\\])(?:\\\\)*\\(?![\\,=])/.test(value)) {
    throw badRequest(`invalid field selector: ${JSON.stringify(term.slice(0, 200))}; escape = and \\ with a backslash`);
  }
  return value.replace(/\\([\\,=])/g, "$1");
}

/** Returns the value of a selectable field as text. Returns "" if the field is absent or null. */
export function readField(object: JsonObject, field: string): string {
  const value = at(object, ...field.split("."));
  return value === undefined || value === null ? "" : String(value);
}

/** Fields that every kind can be selected by. */
const COMMON_FIELDS = ["metadata.name", "metadata.namespace"];

/**
 * Refuses terms on fields that the resource does not support, with the text of the real server: the text differs for kinds without own
 * fields, kinds with own fields, and custom resources. Throws ApiError `BadRequest`.
 */
export function checkFieldSelector(
  selector: FieldSelector,
  resource: { readonly selectableFields: ReadonlySet<string>; readonly custom: boolean },
): void {
  const { selectableFields: supported, custom } = resource;
  for (const { field } of selector) {
    if (COMMON_FIELDS.includes(field) || supported.has(field)) continue;
    if (custom || supported.size > 0) throw badRequest(`field label not supported: ${field}`);
    const known = COMMON_FIELDS.map((name) => JSON.stringify(name)).join(", ");
    throw badRequest(`${JSON.stringify(field)} is not a known field selector: only ${known}`);
  }
}

/** Returns true if an object satisfies every term. */
export function matchesFields(selector: FieldSelector, object: JsonObject): boolean {
  return selector.every((term) => (readField(object, term.field) === term.value) === term.equal);
}
