import { ApiError } from "../errors.ts";

/** The user of a request (authentication/v1 UserInfo). */
export interface UserInfo {
  readonly name: string;
  readonly groups: readonly string[];
  /** More about the user, such as the node of a service account's token. */
  readonly extra?: Readonly<Record<string, readonly string[]>> | undefined;
}

/** The attributes of a request (authorization/v1 ResourceAttributes and NonResourceAttributes). */
export interface RequestAttributes {
  readonly verb: string;
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
  /** Set for paths that are not resources, such as `/healthz`. */
  readonly nonResourcePath?: string;
}

/** Finds the user of a request. `undefined`: unknown, and the request is refused with 401. */
export interface Authenticator {
  authenticate(headers: Readonly<Record<string, string | string[] | undefined>>): UserInfo | undefined;
}

/** The result of an authorization. `reason` may be empty. */
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

/** The rights of a user in a namespace and at the cluster scope. */
export interface Rules {
  readonly rules: readonly PolicyRule[];
  /** True if some rights could not be determined. */
  readonly incomplete: boolean;
}

/** Decides whether a user may send a request. */
export interface Authorizer {
  authorize(user: UserInfo, request: RequestAttributes): Decision;
  rulesFor(user: UserInfo, namespace: string): Rules;
}

/** Every user is the administrator, because the server has no tokens. */
export const openAuthenticator: Authenticator = {
  authenticate: () => ({ name: "system:admin", groups: ["system:masters", "system:authenticated"] }),
};

/** Bearer tokens (RFC 6750) from a fixed table. Every known user is also in `system:authenticated`. */
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

/** An error with status 401 and the text of the real server. */
export function unauthorized(): ApiError {
  return new ApiError("Unauthorized", "Unauthorized");
}
