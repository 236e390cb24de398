import { ApiError } from "../errors.ts";
import type { Authorizer, RequestAttributes, UserInfo } from "./auth.ts";
import { forbiddenError } from "./forbidden.ts";

const SERVICE_ACCOUNT = /^system:serviceaccount:([^:]+):([^:]+)$/;

/**
 * The user as whom a request is authorized: `kubectl --as=alice --as-group=readers`. Throws ApiError `Forbidden` for a user who may not
 * impersonate, and `InternalError`, as kube-apiserver does, for groups without a user.
 */
export function effectiveUser(
  user: UserInfo,
  headers: Readonly<Record<string, string | string[] | undefined>>,
  authorizer: Authorizer,
): UserInfo {
  const name = headers["impersonate-user"];
  const groups = listOf(headers["impersonate-group"]);
  if (name === undefined && groups.length === 0) return user;
  if (typeof name !== "string" || name === "") {
    throw new ApiError(
      "InternalError",
      `Internal error occurred: requested ${JSON.stringify(groups)} without impersonating a user`,
    );
  }
  const account = SERVICE_ACCOUNT.exec(name);
  const wanted =
    account === null
      ? attributes("users", name)
      : { ...attributes("serviceaccounts", account[2] ?? ""), namespace: account[1] ?? "" };
  for (const request of [wanted, ...groups.map((group) => attributes("groups", group))]) {
    const { allowed, reason } = authorizer.authorize(user, request);
    if (!allowed) throw forbiddenError(user, request, reason);
  }
  return { name, groups: groups.length > 0 || account === null ? known(groups) : known(groupsOf(account[1] ?? "")) };
}

/** Groups of every service account of a namespace. */
function groupsOf(namespace: string): string[] {
  return ["system:serviceaccounts", `system:serviceaccounts:${namespace}`];
}

function known(groups: readonly string[]): string[] {
  return [...new Set([...groups, "system:authenticated"])];
}

function attributes(resource: string, name: string): RequestAttributes {
  return { verb: "impersonate", group: "", version: "v1", resource, subresource: "", namespace: "", name };
}

/** Node joins repeated headers by commas if they are not headers that it knows. */
function listOf(value: string | string[] | undefined): string[] {
  const values = typeof value === "string" ? value.split(",") : (value ?? []);
  return values.map((one) => one.trim()).filter((one) => one !== "");
}
