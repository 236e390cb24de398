import { compile, type Program, T, type Value } from "../cel/index.ts";
import type { AdmissionRequest } from "../handlers/admission.ts";
import { asArray, asObject, asString, isObject, type Json, type JsonObject } from "../object/json.ts";

/** The cost of all expressions of a policy or webhook for one request. */
export const COST = 10_000_000;
/** The most compiled expressions that are kept. */
const MAX_PROGRAMS = 1000;
/** All data is without types here, as in kube-apiserver where it does not know the schema. */
const SCOPE = new Map(["object", "oldObject", "request", "variables"].map((name) => [name, T.dyn]));

/** Compiled expressions of policies and webhooks. Holds at most {@link MAX_PROGRAMS} of them. */
export class Expressions {
  readonly #programs = new Map<string, Program>();

  /** Throws `CelError`. */
  run(text: string, known: ReadonlyMap<string, Value>, budget: { left: number }): Value {
    return this.#program(text).run(known, budget);
  }

  /**
   * Returns true if a request meets all matchConditions of a webhook. One that is false counts before one without a value, for which this throws
   * `CelError` (matchconditions.Match of kube-apiserver).
   */
  meets(hook: JsonObject, request: AdmissionRequest): boolean {
    const conditions = asArray(hook["matchConditions"]);
    if (conditions.length === 0) return true;
    const known = variablesOf(request);
    const budget = { left: COST };
    const failures: unknown[] = [];
    for (const condition of conditions) {
      try {
        if (this.run(asString(asObject(condition)["expression"]), known, budget) !== true) return false;
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
    return true;
  }

  #program(text: string): Program {
    const known = this.#programs.get(text);
    if (known !== undefined) return known;
    const [oldest] = this.#programs.keys();
    if (oldest !== undefined && this.#programs.size >= MAX_PROGRAMS) this.#programs.delete(oldest);
    const program = compile(text, SCOPE);
    this.#programs.set(text, program);
    return program;
  }
}

/** The variables of a request in expressions of admission. */
export function variablesOf(request: AdmissionRequest): Map<string, Value> {
  const { object, old, user, operation, name, namespace, group, version, resource, subresource, dryRun } = request;
  const { extra } = user;
  const asked: Json = {
    name,
    namespace,
    operation,
    resource: { group, version, resource },
    // As in kube-apiserver, what is empty is not there.
    ...(subresource === "" ? {} : { subResource: subresource }),
    dryRun,
    userInfo: {
      username: user.name,
      groups: [...user.groups],
      ...(extra === undefined
        ? {}
        : { extra: Object.fromEntries(Object.entries(extra).map(([key, values]) => [key, [...values]])) }),
    },
  };
  return new Map<string, Value>([
    ["object", plain((object ?? null) as Json)],
    ["oldObject", plain((old ?? null) as Json)],
    ["request", plain(asked)],
    ["variables", new Map()],
  ]);
}

/** Data without a schema as a value of an expression. */
function plain(json: Json | undefined): Value {
  if (json === undefined || json === null) return null;
  if (typeof json === "number") return Number.isInteger(json) ? BigInt(json) : json;
  if (Array.isArray(json)) return json.map(plain);
  if (!isObject(json)) return json;
  const members = Object.entries(json).filter(([, value]) => value !== undefined);
  return new Map(members.map(([key, value]) => [key, plain(value)]));
}
