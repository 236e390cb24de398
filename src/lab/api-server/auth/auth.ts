import { ApiError } from "../errors.ts";

/** Who asks (authentication/v1 UserInfo). */
export interface UserInfo {
  readonly name: string;
  readonly groups: readonly string[];
}

/** What is asked (authorization/v1 ResourceAttributes and NonResourceAttributes). */
export interface RequestAttributes {
  readonly verb: string;
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
  /** Set for paths that are no resource, such as `/healthz`. */
  readonly nonResourcePath?: string;
}

/** Finds out who sends a request. Undefined: nobody known, the request is refused with 401. */
export interface Authenticator {
  authenticate(headers: Readonly<Record<string, string | string[] | undefined>>): UserInfo | undefined;
}

/** Decides whether a user may do something. */
export interface Authorizer {
  authorize(user: UserInfo, request: RequestAttributes): { readonly allowed: boolean; readonly reason: string };
}

/** Everybody is the administrator: the server was given no tokens. */
export const openAuthenticator: Authenticator = {
  authenticate: () => ({ name: "system:admin", groups: ["system:masters", "system:authenticated"] }),
};

/** Bearer tokens (RFC 6750) from a fixed table. */
export function tokenAuthenticator(tokens: ReadonlyMap<string, UserInfo>): Authenticator {
  return {
    authenticate(headers) {
      const header = headers["authorization"];
      if (typeof header !== "string") return undefined;
      const match = /^bearer\s+(\S+)\s*$/i.exec(header);
      return match?.[1] === undefined ? undefined : tokens.get(match[1]);
    },
  };
}

/** Whoever is known may do everything. */
export const allowAll: Authorizer = {
  authorize: () => ({ allowed: true, reason: "the lab's API server allows everything to a known user" }),
};

/** 401, as the real server words it. */
export function unauthorized(): ApiError {
  return new ApiError("Unauthorized", "Unauthorized");
}
