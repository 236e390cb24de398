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

/** What was decided. `reason` may be empty. */
export interface Decision {
  readonly allowed: boolean;
  readonly reason: string;
}

/** rbac.authorization.k8s.io/v1 PolicyRule. */
export interface PolicyRule {
  readonly verbs: readonly string[];
  readonly apiGroups: readonly string[];
  readonly resources: readonly string[];
  readonly resourceNames: readonly string[];
  readonly nonResourceURLs: readonly string[];
}

/** What a user may do in a namespace and at the cluster scope. */
export interface Rules {
  readonly rules: readonly PolicyRule[];
  /** Some could not be found out. */
  readonly incomplete: boolean;
}

/** Decides whether a user may do something. */
export interface Authorizer {
  authorize(user: UserInfo, request: RequestAttributes): Decision;
  rulesFor(user: UserInfo, namespace: string): Rules;
}

/** Everybody is the administrator: the server was given no tokens. */
export const openAuthenticator: Authenticator = {
  authenticate: () => ({ name: "system:admin", groups: ["system:masters", "system:authenticated"] }),
};

/** Bearer tokens (RFC 6750) from a fixed table. Whoever is known is also in `system:authenticated`. */
export function tokenAuthenticator(tokens: ReadonlyMap<string, UserInfo>): Authenticator {
  return {
    authenticate(headers) {
      const header = headers["authorization"];
      if (typeof header !== "string") return undefined;
      const match = /^bearer\s+(\S+)\s*$/i.exec(header);
      const user = match?.[1] === undefined ? undefined : tokens.get(match[1]);
      return user === undefined
        ? undefined
        : { ...user, groups: [...new Set([...user.groups, "system:authenticated"])] };
    },
  };
}

/** 401, as the real server words it. */
export function unauthorized(): ApiError {
  return new ApiError("Unauthorized", "Unauthorized");
}
