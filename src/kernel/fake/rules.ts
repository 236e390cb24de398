import type { IpFamily } from "#base/ip";
import { checkRule, describeRule, type Rule, type RulePort, type RuleSpec } from "#kernel/rule";
import type { FakeContext } from "./context.ts";
import { refuse } from "./faults.ts";
import type { FakeNamespace } from "./namespace.ts";

/** The policy rules of a fake namespace. */
export class FakeRulePort implements RulePort {
  readonly #context: FakeContext;
  readonly #ns: FakeNamespace;

  constructor(context: FakeContext, ns: FakeNamespace) {
    this.#context = context;
    this.#ns = ns;
  }

  list(family: IpFamily): Rule[] {
    this.#context.faults.check("rules.list", `list IPv${family} rules`);
    return this.#ns.rules.filter((rule) => rule.family === family).sort((a, b) => a.priority - b.priority);
  }

  add(spec: RuleSpec, { besideEqual = false }: { readonly besideEqual?: boolean } = {}): void {
    checkRule("add", spec);
    const what = describeRule("add", spec);
    this.#context.faults.check("rules.add", what);
    const rule = build(spec);
    if (!besideEqual && this.#ns.rules.some((known) => text(known) === text(rule))) throw refuse("EEXIST", what);
    this.#ns.rules.push(rule);
  }

  delete(spec: RuleSpec): void {
    checkRule("delete", spec);
    const what = describeRule("delete", spec);
    this.#context.faults.check("rules.delete", what);
    const found = this.list(spec.family).find((rule) => matches(rule, spec));
    if (found === undefined) throw refuse("ENOENT", what);
    this.#ns.rules = this.#ns.rules.filter((rule) => rule !== found);
  }
}

function build(spec: RuleSpec): Rule {
  const { family, priority, action = "lookup", table = 0, fwmask, protocol, invert, ...rest } = spec;
  const given = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined));
  return {
    family,
    priority,
    action,
    table: action === "lookup" ? table : 0,
    ...given,
    ...(fwmask === undefined || fwmask === 0xffff_ffff ? {} : { fwmask }),
    ...(protocol === undefined || protocol === 0 ? {} : { protocol }),
    ...(invert === true ? { invert } : {}),
  };
}

/** The identity of a rule; rules that differ only in their protocol are the same. */
function text({ protocol: _who, ...rule }: Rule): string {
  return JSON.stringify(Object.entries(rule).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** The kernel compares only the fields of the request. */
function matches(rule: Rule, spec: RuleSpec): boolean {
  const wanted = build({ action: rule.action, ...spec, table: spec.table ?? rule.table });
  return Object.entries(wanted).every(([key, value]) => String(rule[key as keyof Rule]) === String(value));
}
