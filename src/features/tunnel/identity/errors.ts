import { ExpectedError } from "#base/errors";

/** `unreadable`: the file cannot be read. `invalid`: it has faults, which the message names by line and field. */
export type AgentRulesErrorCode = "unreadable" | "invalid";

/** The rules of `--agent-identity` cannot be used. */
export class AgentRulesError extends ExpectedError<AgentRulesErrorCode> {
  override readonly name = "AgentRulesError";
}
