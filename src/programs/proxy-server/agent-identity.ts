import type { Clock } from "#base/clock";
import { ConfigError } from "#base/config";
import { describeError } from "#base/errors";
import { lookAt, watchFiles } from "#base/file";
import type { Logger } from "#base/log";
import { loadRules } from "#features/tunnel";
import type { ServerConfig } from "./config.ts";

type Rules = Awaited<ReturnType<typeof loadRules>>;
type AgentRule = ReturnType<Rules["readAgentRules"]>[number];
type Config = Pick<ServerConfig, "agent" | "identity" | "strategies" | "tokens">;

/** The rules of `--agent-identity`, in force. */
export interface AgentIdentity {
  readonly gate: InstanceType<Rules["RuleGate"]>;
  /** Follows the files until the signal aborts. A file that cannot be used is logged, and changes nothing. */
  follow(
    deps: { readonly log: Logger; readonly clock: Clock },
    options: { readonly signal: AbortSignal },
  ): Promise<void>;
}

/** Reads the rules; `undefined` without the flag. Rejects with `ConfigError`. */
export async function agentIdentity(config: Config): Promise<AgentIdentity | undefined> {
  const { identity } = config;
  if (identity === undefined) return undefined;
  const { sources, limits } = identity;
  const { AgentRulesError, RuleGate, readAgentRules, ruleFiles } = await loadRules();
  const read = (): readonly AgentRule[] => {
    try {
      const rules = readAgentRules(sources);
      const faults = ruleFaults(rules, config);
      if (faults.length > 0) throw new ConfigError("invalid-flags", faults);
      return rules;
    } catch (error) {
      if (!(error instanceof AgentRulesError)) throw error;
      throw new ConfigError("invalid-flags", [`--agent-identity: ${error.message}`]);
    }
  };
  const files = ruleFiles(sources);
  const since = lookAt(files);
  const gate = new RuleGate(read(), limits);
  const reload = (log: Logger): void => {
    try {
      gate.replace(read());
      log.info("the rules about agents were read again", { files });
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      log.error("the rules about agents cannot be used; the old rules stay in force", { reason: describeError(error) });
    }
  };
  return {
    gate,
    follow: ({ log, clock }, { signal }) => watchFiles(files, () => reload(log), { signal, clock, since }),
  };
}

/** What cannot work about rules together with the other flags. Pure. */
export function ruleFaults(rules: readonly AgentRule[], { agent, tokens, strategies }: Config): readonly string[] {
  const faults: string[] = [];
  for (const { name, certificate, token } of rules) {
    if (certificate !== undefined && agent.tls.clientCa === undefined) {
      faults.push(`--agent-identity: rule "${name}" is about certificates, which need --cluster-ca-cert`);
    }
    if (token !== undefined && tokens === undefined) {
      faults.push(
        `--agent-identity: rule "${name}" is about tokens, which need --authentication-audience and its flags`,
      );
    }
  }
  if (!strategies.includes("destHost") && !rules.some(({ anyHost }) => anyHost)) {
    const list = strategies.join(",");
    faults.push(
      `--agent-identity: no rule has "anyHost: true", so that --proxy-strategies=${list} would find no agent; add it, or the strategy destHost`,
    );
  }
  return faults;
}
