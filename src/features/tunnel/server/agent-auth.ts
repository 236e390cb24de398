import { ExpectedError } from "#base/errors";
import type { TokenNames } from "../identity/credential.ts";

/** `unauthenticated`: the agent is refused. `unavailable`: the check failed; the agent should try again. */
export type AgentAuthErrorCode = "unauthenticated" | "unavailable";

/** Thrown if an agent is not admitted. The message is for logs and never contains the token. */
export class AgentAuthError extends ExpectedError<AgentAuthErrorCode> {
  override readonly name = "AgentAuthError";
}

/** Decides whether an agent may connect, by its `authorization` metadata, and says for whom the token is. Rejects with {@link AgentAuthError}. */
export interface AgentAuthenticator {
  authenticate(authorization: readonly string[], options: { readonly signal: AbortSignal }): Promise<TokenNames>;
}
