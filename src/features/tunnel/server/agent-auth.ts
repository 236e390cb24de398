import { ExpectedError } from "#base/errors";

/** `unauthenticated`: the agent is refused. `unavailable`: it could not be found out; the agent should come again. */
export type AgentAuthErrorCode = "unauthenticated" | "unavailable";

/** An agent that is not let in. The message is for logs; it never holds the token. */
export class AgentAuthError extends ExpectedError<AgentAuthErrorCode> {
  override readonly name = "AgentAuthError";
}

/** Decides whether an agent may connect, by its `authorization` metadata. Rejects with {@link AgentAuthError}. */
export interface AgentAuthenticator {
  authenticate(authorization: readonly string[], options: { readonly signal: AbortSignal }): Promise<void>;
}
