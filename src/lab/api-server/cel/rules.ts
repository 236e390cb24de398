import type { Cause } from "../errors.ts";
import { asObject, equal, isObject, type Json, type JsonObject } from "../object/json.ts";
import type { Schema } from "../schema/schema.ts";
import { CelError } from "./errors.ts";
import type { Budget } from "./evaluate.ts";
import { compileRule, REASONS, type Rule } from "./rule.ts";
import { isEmbedded, schemaType } from "./schema-type.ts";
import type { Type } from "./types.ts";
import { Optional, toValue, type Value } from "./value.ts";

/** The budget of one rule, and of all rules for one object (apiserver pkg/apis/cel: PerCallLimit, RuntimeCELCostBudget). */
const RULE_COST = 1_000_000;
const OBJECT_COST = 10_000_000;
/** The maximum length of an evaluated message. */
const MAX_MESSAGE_LENGTH = 5 * 1024;
/** The path of the whole object, as a real server prints it. */
const ROOT_PATH = "<nil>";

/** The rules of a schema and of its members. */
export interface Rules {
  readonly schema: Schema;
  readonly type: Type | undefined;
  readonly own: readonly Rule[];
  readonly properties: ReadonlyMap<string, Rules>;
  readonly items: Rules | undefined;
  readonly additional: Rules | undefined;
}

/** The result of compiling: the rules, if there are any, and their faults. */
export interface CompiledRules {
  readonly rules: Rules | undefined;
  readonly causes: readonly Cause[];
}

/**
 * Compiles all rules of a CRD's schema, which is the root of a resource; `path` is its place in the CRD. Costs are not estimated: a real
 * server refuses a rule that might be too expensive; here a rule that is too expensive fails when it runs.
 */
export function compileRules(schema: Schema, path: string): CompiledRules {
  const causes: Cause[] = [];
  const rules = compileNode(schema, {
    path,
    type: schemaType(schema, "selfType", true),
    uncorrelated: undefined,
    causes,
  });
  return { rules, causes };
}

interface SchemaPosition {
  readonly path: string;
  readonly type: Type | undefined;
  /** The path of a list whose items cannot be matched with the old items. */
  readonly uncorrelated: string | undefined;
  readonly causes: Cause[];
}

function compileNode(schema: Schema, place: SchemaPosition): Rules | undefined {
  const { path, type, causes } = place;
  const own: Rule[] = [];
  for (const [at, source] of (schema["x-kubernetes-validations"] ?? []).entries()) {
    const where = `${path}.x-kubernetes-validations[${at}]`;
    if (type === undefined) {
      causes.push(fault("FieldValueInvalid", where, "rules need a schema that gives the type of the data"));
      continue;
    }
    const compiled = compileRule(asObject(source), type, schema, where);
    causes.push(...compiled.causes);
    const { rule } = compiled;
    if (rule?.usesOld === true && place.uncorrelated !== undefined) {
      const why = `oldSelf cannot be used on the uncorrelatable portion of the schema within ${place.uncorrelated}`;
      causes.push(fault("FieldValueInvalid", `${where}.rule`, why, JSON.stringify(source["rule"])));
    } else if (rule !== undefined) own.push(rule);
  }
  const properties = new Map<string, Rules>();
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    const inner = compileNode(property, below(place, `${path}.properties[${name}]`, property, schema));
    if (inner !== undefined) properties.set(name, inner);
  }
  const { items: list, additionalProperties: extra } = schema;
  const items = list === undefined ? undefined : compileNode(list, below(place, `${path}.items`, list, schema));
  const additional =
    typeof extra === "object"
      ? compileNode(extra, below(place, `${path}.additionalProperties`, extra, schema))
      : undefined;
  if (own.length === 0 && properties.size === 0 && items === undefined && additional === undefined) return undefined;
  return { schema, type, own, properties, items, additional };
}

function below(place: SchemaPosition, path: string, schema: Schema, parent: Schema): SchemaPosition {
  const known = parent["x-kubernetes-list-type"] === "map" || parent.type !== "array";
  return {
    path,
    type: schemaType(schema, "selfType", isEmbedded(schema)),
    uncorrelated: place.uncorrelated ?? (known ? undefined : place.path),
    causes: place.causes,
  };
}

/** The input of {@link checkRules}. */
interface Visit {
  readonly causes: Cause[];
  readonly warn: (text: string) => void;
  readonly budget: Budget;
}

/** An old value that a new one is compared with: absent on create, and if no old item matches. */
interface Old {
  readonly value: Json | undefined;
  /** True if the value, or a value that contains it, has not changed: its faults are old, and are only warnings. */
  readonly unchanged: boolean;
}

/** The faults of an object by its rules; on update faults of unchanged values are warnings. */
export function checkRules(
  rules: Rules,
  object: JsonObject,
  old: JsonObject | undefined,
  warn: (text: string) => void,
): Cause[] {
  const visit: Visit = { causes: [], warn, budget: { left: OBJECT_COST } };
  visitNode(rules, object, { value: old, unchanged: old !== undefined && equal(object, old) }, "", visit);
  return visit.causes;
}

function visitNode(rules: Rules, value: Json | undefined, old: Old, path: string, visit: Visit): void {
  if (value === undefined || value === null || visit.budget.left < 0) return;
  runRules(rules, value, old, path, visit);
  if (Array.isArray(value)) {
    const { items } = rules;
    if (items === undefined) return;
    for (const [at, item] of value.entries()) {
      visitNode(items, item, oldItem(rules.schema, old, item), `${path}[${at}]`, visit);
    }
  } else if (isObject(value)) {
    for (const [key, member] of Object.entries(value)) {
      const inner = rules.properties.get(key) ?? rules.additional;
      if (inner === undefined) continue;
      const isNamed = rules.properties.has(key);
      const where = isNamed ? (path === "" ? key : `${path}.${key}`) : `${path}[${key}]`;
      visitNode(inner, member, compared(member, isObject(old.value) ? old.value[key] : undefined, old), where, visit);
    }
  }
}

function compared(value: Json | undefined, old: Json | undefined, around: Old): Old {
  return { value: old, unchanged: old === undefined ? around.unchanged : equal(value, old) };
}

/** Items of a list are compared if their keys match. */
function oldItem(schema: Schema, old: Old, item: Json): Old {
  const keys = schema["x-kubernetes-list-map-keys"] ?? [];
  if (schema["x-kubernetes-list-type"] !== "map" || !Array.isArray(old.value) || !isObject(item)) {
    return { value: undefined, unchanged: old.unchanged };
  }
  const same = old.value.find((other) => isObject(other) && keys.every((key) => equal(other[key], item[key])));
  return compared(item, same, old);
}

function runRules(rules: Rules, value: Json, old: Old, path: string, visit: Visit): void {
  const { type } = rules;
  if (type === undefined || rules.own.length === 0) return;
  for (const rule of rules.own) {
    if (visit.budget.left < 0) return;
    const hasOld = old.value !== undefined && old.value !== null;
    if (rule.usesOld && !hasOld && !rule.optionalOld) continue;
    const verdict = judge(rule, () => variables(rule, type, value, hasOld ? old.value : undefined), visit.budget);
    if (verdict === undefined) continue;
    const cause = { ...verdict.cause, field: fieldOf(path, verdict.isFault ? "" : rule.fieldPath) };
    const complete = { ...cause, message: verdict.text(value, rules.schema) };
    if (!rule.usesOld && old.unchanged && !verdict.isFault) visit.warn(`${complete.field}: ${complete.message}`);
    else visit.causes.push(complete);
  }
}

function variables(rule: Rule, type: Type, value: Json, old: Json | undefined): Map<string, Value> {
  const known = new Map<string, Value>([["self", toValue(value, type)]]);
  const before = rule.usesOld && old !== undefined && old !== null ? toValue(old, type) : undefined;
  if (rule.optionalOld) known.set("oldSelf", new Optional(before));
  else if (before !== undefined) known.set("oldSelf", before);
  return known;
}

interface Verdict {
  readonly cause: Pick<Cause, "reason">;
  readonly text: (value: Json, schema: Schema) => string;
  /** The rule could not be evaluated, so its field path and reason are not used. */
  readonly isFault: boolean;
}

/** The fault; undefined if the rule holds. */
function judge(rule: Rule, values: () => Map<string, Value>, budget: Budget): Verdict | undefined {
  const own: Budget = { left: Math.min(RULE_COST, budget.left) };
  const granted = own.left;
  try {
    const known = values();
    if (rule.program.run(known, own) === true) return undefined;
    const detail = messageOf(rule, known, own);
    return {
      cause: { reason: rule.reason },
      isFault: false,
      text: (value, schema) => messageText(rule.reason, value, schema, detail),
    };
  } catch (error) {
    if (!(error instanceof CelError)) throw error;
    return failed(error, rule);
  } finally {
    budget.left -= granted - Math.max(0, own.left);
    if (own.left < 0) budget.left = -1;
  }
}

function failed(error: CelError, rule: Rule): Verdict {
  const what = rule.detail.replace(/^failed rule: /, "");
  const text =
    error.code === "cost"
      ? `'${error.message}': no further validation rules will be run due to call cost exceeds limit for rule: ${what}`
      : error.message === "no such overload"
        ? `'${error.message}': call arguments did not match a supported operator, function or macro signature for rule: ${what}`
        : `${error.message} evaluating rule: ${what}`;
  return {
    cause: { reason: "FieldValueInvalid" },
    isFault: true,
    text: (_value, schema) => `Invalid value: ${JSON.stringify(schema.type ?? "")}: ${text}`,
  };
}

function messageOf(rule: Rule, known: Map<string, Value>, budget: Budget): string {
  if (rule.message === undefined) return rule.detail;
  try {
    const text = String(rule.message.run(known, budget)).trim();
    const isUsable = text !== "" && !text.includes("\n") && text.length <= MAX_MESSAGE_LENGTH;
    return isUsable ? text : rule.detail;
  } catch (error) {
    if (error instanceof CelError && error.code === "evaluation") return rule.detail;
    throw error;
  }
}

function messageText(reason: string, value: Json, schema: Schema, detail: string): string {
  const isOmitted = schema.type === "object" || schema.type === "array";
  switch (REASONS[reason]) {
    case "Forbidden":
      return `Forbidden: ${detail}`;
    case "Required":
      return `Required value: ${detail}`;
    case "Duplicate":
      return isOmitted ? "Duplicate value" : `Duplicate value: ${JSON.stringify(value)}`;
    default:
      return isOmitted ? `Invalid value: ${detail}` : `Invalid value: ${JSON.stringify(value)}: ${detail}`;
  }
}

function fieldOf(path: string, below: string): string {
  const whole = path + (below.startsWith(".") || below.startsWith("[") ? below : below === "" ? "" : `.${below}`);
  return whole === "" ? ROOT_PATH : whole.replace(/^\./, "");
}

function fault(reason: string, field: string, why: string, value = '"object"'): Cause {
  return { reason, field, message: `Invalid value: ${value}: ${why}` };
}
