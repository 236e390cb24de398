import { ApiError, type StatusDetails } from "../errors.ts";
import type { RequestAttributes, UserInfo } from "./auth.ts";

/** An error with status 403 and the text of kube-apiserver (apiserver pkg/endpoints/handlers/responsewriters/errors.go). */
export function forbiddenError(user: UserInfo, request: RequestAttributes, reason: string): ApiError {
  return new ApiError("Forbidden", forbiddenText(user, request, reason), { details: detailsOf(request) });
}

function forbiddenText(user: UserInfo, request: RequestAttributes, reason: string): string {
  const { verb, group, resource, subresource, namespace, name, nonResourcePath } = request;
  const who = `User ${JSON.stringify(user.name)} cannot ${verb}`;
  const why = reason === "" ? "" : `: ${reason}`;
  if (nonResourcePath !== undefined) return `forbidden: ${who} path ${JSON.stringify(nonResourcePath)}${why}`;
  const full = group === "" ? resource : `${resource}.${group}`;
  const object = name === "" ? full : `${full} ${JSON.stringify(name)}`;
  const what = JSON.stringify(subresource === "" ? resource : `${resource}/${subresource}`);
  const where = namespace === "" ? "at the cluster scope" : `in the namespace ${JSON.stringify(namespace)}`;
  return `${object} is forbidden: ${who} resource ${what} in API group ${JSON.stringify(group)} ${where}${why}`;
}

function detailsOf({ group, resource, name, nonResourcePath }: RequestAttributes): StatusDetails {
  if (nonResourcePath !== undefined) return {};
  return { ...(name === "" ? {} : { name }), ...(group === "" ? {} : { group }), kind: resource };
}
