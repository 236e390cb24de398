import { KernelError } from "#kernel/errors";
import { type NetlinkConnection, NLM_F, RTM } from "#kernel/netlink";
import { decodeRule, encodeRule, encodeRuleDump } from "./codec.ts";
import type { RulePort, RuleSpec } from "./types.ts";

/** The policy rules of the namespace that `connection` is in. The connection stays the caller's. */
export function openRulePort(connection: NetlinkConnection): RulePort {
  const write = (verb: string, type: number, flags: number, spec: RuleSpec): void => {
    checkRule(verb, spec);
    connection.change({ type, flags, body: encodeRule(spec), what: () => describeRule(verb, spec) });
  };
  return {
    list(family) {
      const request = { type: RTM.GETRULE, body: encodeRuleDump(family), what: () => `list IPv${family} rules` };
      return connection.dump(request, ({ type, payload }) => (type === RTM.NEWRULE ? decodeRule(payload) : undefined));
    },
    add: (spec, { besideEqual = false } = {}) =>
      write("add", RTM.NEWRULE, NLM_F.CREATE | (besideEqual ? 0 : NLM_F.EXCL), spec),
    delete: (spec) => write("delete", RTM.DELRULE, 0, spec),
  };
}

/** Throws {@link KernelError} `invalid` for a rule that cannot be encoded or is contradictory. */
export function checkRule(verb: string, spec: RuleSpec): void {
  const why = faultOf(verb, spec);
  if (why !== undefined) {
    throw new KernelError("invalid", `Cannot ${describeRule(verb, spec)}: ${why}`, { errno: "EINVAL" });
  }
}

function faultOf(verb: string, spec: RuleSpec): string | undefined {
  const { family, priority, from, to, action = "lookup" } = spec;
  if (!Number.isInteger(priority) || priority < 0 || priority > 0xffff_ffff) return "the priority must be 0 to 2^32-1";
  if ((from !== undefined && from.family !== family) || (to !== undefined && to.family !== family)) {
    return `its prefixes must be of IPv${family}`;
  }
  const adding = verb === "add";
  if (adding && action === "lookup" && (spec.table === undefined || spec.table < 1)) return "a lookup needs a table";
  if (adding && action === "goto" && spec.goto === undefined) return "goto needs the priority of its target rule";
  return undefined;
}

/** `add IPv4 rule 2000 fwmark 5 lookup 116`. */
export function describeRule(verb: string, spec: RuleSpec): string {
  const parts = [verb, `IPv${spec.family} rule ${spec.priority}`];
  if (spec.from !== undefined) parts.push(`from ${spec.from}`);
  if (spec.to !== undefined) parts.push(`to ${spec.to}`);
  if (spec.iif !== undefined) parts.push(`iif ${spec.iif}`);
  if (spec.oif !== undefined) parts.push(`oif ${spec.oif}`);
  if (spec.fwmark !== undefined) parts.push(`fwmark ${spec.fwmark}`);
  parts.push(spec.table === undefined ? (spec.action ?? "") : `lookup ${spec.table}`);
  return parts.join(" ").trim();
}
