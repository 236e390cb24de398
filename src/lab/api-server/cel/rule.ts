import type { Cause } from "../errors.ts";
import { asString, type Json, type JsonObject } from "../object/json.ts";
import type { Schema } from "../schema/schema.ts";
import { compile, type Program } from "./compile.ts";
import { CelError } from "./errors.ts";
import type { Type } from "./types.ts";

/** A rule of `x-kubernetes-validations`, compiled. */
export interface Rule {
  readonly program: Program;
  readonly message: Program | undefined;
  /** The message if the rule has no message expression, or that expression has no value. */
  readonly detail: string;
  readonly reason: string;
  /** The path of the fault below the value of the rule: `.a.b`, or empty. */
  readonly fieldPath: string;
  readonly usesOld: boolean;
  /** `oldSelf` is an optional, and the rule is also run without an old value. */
  readonly optionalOld: boolean;
}

/** A compiled rule, or the faults because of which it cannot be compiled. */
export interface CompiledRule {
  readonly rule: Rule | undefined;
  readonly causes: readonly Cause[];
}

/** The reasons of rules, with the prefix of their messages. */
export const REASONS: Readonly<Record<string, "Invalid" | "Forbidden" | "Required" | "Duplicate">> = {
  FieldValueInvalid: "Invalid",
  FieldValueForbidden: "Forbidden",
  FieldValueRequired: "Required",
  FieldValueDuplicate: "Duplicate",
};

function invalid(field: string, why: string, value: Json = '"object"'): Cause {
  return { reason: "FieldValueInvalid", message: `Invalid value: ${String(value)}: ${why}`, field };
}

function required(field: string, why: string): Cause {
  return { reason: "FieldValueRequired", message: `Required value: ${why}`, field };
}

const quoted = (value: Json | undefined): string => JSON.stringify(value ?? "");

/** Compiles a rule about values of a type; `path` is its place in the CRD, and `fieldPath` is resolved in the schema. */
export function compileRule(source: JsonObject, type: Type, schema: Schema, path: string): CompiledRule {
  const shape = shapeCauses(source, schema, path);
  if (shape.length > 0) return { rule: undefined, causes: shape };
  const optionalOld = source["optionalOldSelf"] === true;
  const old: Type = optionalOld ? { kind: "optional", item: type } : type;
  const scope = new Map([
    ["self", type],
    ["oldSelf", old],
  ]);
  const causes: Cause[] = [];
  const one = (member: "rule" | "messageExpression", wanted: "bool" | "string"): Program | undefined => {
    const prefix = member === "rule" ? "" : "messageExpression ";
    try {
      const program = compile(asString(source[member]), scope);
      if (program.type.kind === wanted) return program;
      const what =
        member === "rule" ? "cel expression must evaluate to a bool" : "messageExpression must evaluate to a string";
      causes.push(invalid(`${path}.${member}`, what, shown(source)));
    } catch (error) {
      if (!(error instanceof CelError)) throw error;
      const what = error.code === "evaluation" ? "program instantiation" : `${prefix}compilation`;
      causes.push(invalid(`${path}.${member}`, `${what} failed: ${error.message}`, shown(source)));
    }
    return undefined;
  };
  const program = one("rule", "bool");
  const message = asString(source["messageExpression"]) === "" ? undefined : one("messageExpression", "string");
  if (program === undefined || causes.length > 0) return { rule: undefined, causes };
  const usesOld = program.uses.has("oldSelf");
  if (source["optionalOldSelf"] !== undefined && !usesOld) {
    const why = "may not be set if oldSelf is not used in rule";
    return { rule: undefined, causes: [invalid(`${path}.optionalOldSelf`, why, source["optionalOldSelf"])] };
  }
  return { rule: { ...worded(source), program, message, usesOld, optionalOld }, causes };
}

function worded(source: JsonObject): Pick<Rule, "detail" | "reason" | "fieldPath"> {
  const message = asString(source["message"]).trim();
  return {
    detail: message === "" ? `failed rule: ${asString(source["rule"]).trim()}` : message,
    reason: asString(source["reason"]) || "FieldValueInvalid",
    fieldPath: asString(source["fieldPath"]).trim(),
  };
}

/** The text of a rule in faults: JSON, as in the real server. */
function shown(source: JsonObject): string {
  const { rule, message, messageExpression, reason, fieldPath, optionalOldSelf } = source;
  return JSON.stringify({
    Rule: rule ?? "",
    Message: message ?? "",
    MessageExpression: messageExpression ?? "",
    Reason: reason ?? null,
    FieldPath: fieldPath ?? "",
    OptionalOldSelf: optionalOldSelf ?? null,
  });
}

function shapeCauses(source: JsonObject, schema: Schema, path: string): Cause[] {
  const causes: Cause[] = [];
  const rule = asString(source["rule"]).trim();
  const message = asString(source["message"]);
  if (rule === "") causes.push(required(`${path}.rule`, "rule is not specified"));
  else if (message !== "" && message.trim() === "")
    causes.push(invalid(`${path}.message`, "must be non-empty if specified", quoted(message)));
  else if (message.trim().includes("\n"))
    causes.push(invalid(`${path}.message`, "must not contain line breaks", quoted(message)));
  else if (rule.includes("\n") && message === "")
    causes.push(required(`${path}.message`, "message must be specified if rule contains line breaks"));
  const expression = asString(source["messageExpression"]);
  if (expression !== "" && expression.trim() === "")
    causes.push(required(`${path}.messageExpression`, "messageExpression must be non-empty if specified"));
  const reason = source["reason"];
  if (reason !== undefined && !Object.hasOwn(REASONS, asString(reason))) {
    const supported = Object.keys(REASONS)
      .sort()
      .map((each) => JSON.stringify(each));
    causes.push({
      reason: "FieldValueNotSupported",
      message: `Unsupported value: ${quoted(reason)}: supported values: ${supported.join(", ")}`,
      field: `${path}.reason`,
    });
  }
  const fieldPath = asString(source["fieldPath"]);
  if (fieldPath !== "" && !isPath(fieldPath, schema))
    causes.push(invalid(`${path}.fieldPath`, "must be a valid path", quoted(fieldPath)));
  return causes;
}

/** Returns true if a path such as `.a.b` or `['a']` leads to a member that the schema names. */
function isPath(path: string, schema: Schema): boolean {
  let here: Schema | undefined = schema;
  let rest = path;
  while (rest !== "" && here !== undefined) {
    const step: RegExpExecArray | null = /^(?:\.([^.[\]]+)|\['((?:[^'\\]|\\.)*)'\])/.exec(rest);
    if (step === null) return false;
    const name: string = step[1] ?? (step[2] ?? "").replace(/\\(.)/g, "$1");
    const extra: Schema["additionalProperties"] = here.additionalProperties;
    here = here.properties === undefined ? (typeof extra === "object" ? extra : undefined) : here.properties[name];
    rest = rest.slice(step[0].length);
  }
  return here !== undefined;
}
