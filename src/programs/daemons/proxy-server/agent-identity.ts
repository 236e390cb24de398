import type { Clock } from "#base/clock";
import { ConfigError } from "#base/config";
import { describeError } from "#base/errors";
import { lookAt, watchFiles } from "#base/file";
import type { Logger } from "#base/log";
import { loadKubernetes, loadRules, type NodeBook } from "#features/tunnel";
import type { ServerConfig } from "./config.ts";

type Rules = Awaited<ReturnType<typeof loadRules>>;
type AgentRule = ReturnType<Rules["readAgentRules"]>[number];
type Config = Pick<ServerConfig, "agent" | "identity" | "strategies" | "tokens">;

/** The rules of `--agent-identity`, in force. */
export interface AgentIdentity {
  readonly gate: InstanceType<Rules["RuleGate"]>;
  /** To be run with a client of the API server; `undefined` if no rule is about addresses of Nodes. */
  readonly nodes: NodeBook | undefined;
  /** Follows the files until the signal aborts. A file that cannot be used is logged, and changes nothing. */
  follow(options: { readonly signal: AbortSignal }): Promise<void>;
}

/** Reads the rules; `undefined` without the flag. Rejects with `ConfigError`. */
export async function agentIdentity(
  config: Config,
  {
    log,
    clock,
    isBalancer,
  }: {
    readonly log: Logger;
    readonly clock: Clock;
    readonly isBalancer?: ((address: string) => boolean) | undefined;
  },
): Promise<AgentIdentity | undefined> {
  const { identity } = config;
  if (identity === undefined) return undefined;
  const { sources, limits, notNodes } = identity;
  const { AgentRulesError, RuleGate, readAgentRules, ruleFiles } = await loadRules();
  const read = (): readonly AgentRule[] => {
    try {
      return usableRules(readAgentRules(sources), config);
    } catch (error) {
      if (!(error instanceof AgentRulesError)) throw error;
      throw new ConfigError("invalid-flags", [`--agent-identity: ${error.message}`]);
    }
  };
  const files = ruleFiles(sources);
  const since = lookAt(files);
  const rules = read();
  const needsNodes = (some: readonly AgentRule[]): boolean => some.some(({ nodeAddresses }) => nodeAddresses);
  const nodes =
    needsNodes(rules) && notNodes !== undefined
      ? new (await loadKubernetes()).NodeBook(
          { log, clock, isBalancer, onChange: (addresses) => gate.addressesChanged(addresses) },
          notNodes,
        )
      : undefined;
  const gate = new RuleGate(rules, limits, nodes);
  const reload = (): void => {
    try {
      const changed = read();
      if (needsNodes(changed) && nodes === undefined) {
        throw new ConfigError("invalid-flags", ["nodeAddresses is new in these rules, and takes a restart"]);
      }
      gate.replace(changed);
      log.info("the rules about agents were read again", { files });
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      log.error("the rules about agents cannot be used; the old rules stay in force", { reason: describeError(error) });
    }
  };
  return { gate, nodes, follow: ({ signal }) => watchFiles(files, reload, { signal, clock, since }) };
}

/** The rules that apply with the other flags. Pure. Throws `ConfigError` for rules that cannot work with them. */
export function usableRules(
  all: readonly AgentRule[],
  { agent, identity, tokens, strategies }: Config,
): readonly AgentRule[] {
  const faults: string[] = [];
  const lacks = ({ certificate, token }: AgentRule): string | undefined => {
    if (certificate !== undefined && agent.tls.clientCa === undefined) {
      return "certificates, which need --cluster-ca-cert";
    }
    if (token !== undefined && tokens === undefined)
      return "tokens, which need --authentication-audience and its flags";
    return undefined;
  };
  const rules = all.filter((rule) => !rule.isOptional || lacks(rule) === undefined);
  for (const rule of rules) {
    const what = lacks(rule);
    if (what !== undefined) faults.push(`rule "${rule.name}" is about ${what}`);
    if (rule.nodeAddresses && identity?.notNodes === undefined) {
      const why = "a kubelet can write any address into its Node, of pods and Services too";
      faults.push(`rule "${rule.name}" has nodeAddresses, which needs --pod-cidr and --service-cidr: ${why}`);
    }
  }
  if (!strategies.includes("destHost") && !rules.some(({ anyHost }) => anyHost)) {
    const list = strategies.join(",");
    faults.push(
      `no rule has "anyHost: true", so that --proxy-strategies=${list} would find no agent; add it, or the strategy destHost`,
    );
  }
  if (faults.length === 0) return rules;
  throw new ConfigError(
    "invalid-flags",
    faults.map((fault) => `--agent-identity: ${fault}`),
  );
}
