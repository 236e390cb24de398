import { equal, isObject, type Json, own } from "../object/json.ts";

/** One step of a simple JSONPath, as CRD columns use it (kubernetes jsonpath without braces). */
export type PathStep =
  | { readonly step: "member"; readonly name: string }
  | { readonly step: "index"; readonly index: number }
  | { readonly step: "all" }
  | { readonly step: "filter"; readonly path: readonly string[]; readonly op: "==" | "!="; readonly value: Json };

/** Parses `.a.b[0].c[*].d[?(@.type=="Ready")].e`. Undefined when it is not of that form. */
export function parsePath(text: string): PathStep[] | undefined {
  const steps: PathStep[] = [];
  let rest = text.trim();
  while (rest !== "") {
    const parsed = parseStep(rest);
    if (parsed === undefined) return undefined;
    steps.push(parsed.step);
    rest = rest.slice(parsed.length);
  }
  return steps;
}

function parseStep(text: string): { step: PathStep; length: number } | undefined {
  const member = /^\.((?:[^.[\]\\]|\\.)+)/.exec(text);
  if (member?.[1] !== undefined) {
    const name = member[1].replace(/\\(.)/g, "$1");
    return { step: name === "*" ? { step: "all" } : { step: "member", name }, length: member[0].length };
  }
  const quoted = /^\[(?:'([^']*)'|"([^"]*)")\]/.exec(text);
  if (quoted !== null)
    return {
      step: { step: "member", name: (quoted[1] ?? quoted[2] ?? "").replace(/\\(.)/g, "$1") },
      length: quoted[0].length,
    };
  const index = /^\[(-?\d{1,9})\]/.exec(text);
  if (index?.[1] !== undefined) return { step: { step: "index", index: Number(index[1]) }, length: index[0].length };
  if (text.startsWith("[*]")) return { step: { step: "all" }, length: 3 };
  const filter = /^\[\?\(\s*@\.([\w.-]+)\s*(==|!=)\s*(?:'([^']*)'|"([^"]*)"|(true|false|-?\d+(?:\.\d+)?))\s*\)\]/.exec(
    text,
  );
  if (filter === null) return undefined;
  const [whole, path = "", op, single, double, literal] = filter;
  const value: Json = literal === undefined ? (single ?? double ?? "") : (JSON.parse(literal) as Json);
  return {
    step: { step: "filter", path: path.split("."), op: op === "!=" ? "!=" : "==", value },
    length: whole.length,
  };
}

/** The values at a path, in order. */
export function evaluatePath(path: readonly PathStep[], value: Json): Json[] {
  let here: Json[] = [value];
  for (const step of path) here = here.flatMap((item) => follow(step, item));
  return here;
}

function follow(step: PathStep, value: Json): Json[] {
  switch (step.step) {
    case "member": {
      const found = isObject(value) ? own(value, step.name) : undefined;
      return found === undefined ? [] : [found];
    }
    case "index": {
      const found = Array.isArray(value) ? value.at(step.index) : undefined;
      return found === undefined ? [] : [found];
    }
    case "all":
      if (Array.isArray(value)) return value;
      return isObject(value) ? Object.values(value).filter((item) => item !== undefined) : [];
    case "filter":
      return Array.isArray(value) ? value.filter((item) => passes(step, item)) : [];
  }
}

function passes(step: Extract<PathStep, { step: "filter" }>, item: Json): boolean {
  let found: Json | undefined = item;
  for (const key of step.path) found = isObject(found) ? own(found, key) : undefined;
  return found !== undefined && equal(found, step.value) === (step.op === "==");
}
