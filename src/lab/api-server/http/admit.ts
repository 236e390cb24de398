import type { IncomingMessage } from "node:http";
import { type RequestAttributes, type UserInfo, unauthorized } from "../auth/auth.ts";
import { forbiddenError } from "../auth/forbidden.ts";
import { effectiveUser } from "../auth/impersonate.ts";
import { noSuchResource } from "../errors.ts";
import { parseResourceRequest, type ResourceRequest } from "./request-info.ts";
import type { ServerState } from "./state.ts";

/** A request that may be answered. */
export interface Admitted {
  readonly user: UserInfo;
  readonly url: URL;
  /** `undefined` for paths that are not resources. */
  readonly parsed: ResourceRequest | undefined;
}

/** Authenticates and authorizes a request. Throws ApiError `Unauthorized`, `Forbidden` and `NotFound`. */
export function admit(state: ServerState, request: IncomingMessage): Admitted {
  const url = parseUrl(request.url ?? "/");
  const method = request.method ?? "GET";
  const sender = state.authenticator.authenticate(request.headers);
  if (sender === undefined) throw unauthorized();
  const user = effectiveUser(sender, request.headers, state.authorizer);
  const parsed = parseResourceRequest(method, url, state.registry);
  const attributes = attributesOf(url, parsed, method);
  requireRight(state, request, user, attributes);
  return { user, url, parsed };
}

/** Throws ApiError `Forbidden` if the user lacks a right. */
export function requireRight(
  state: ServerState,
  request: IncomingMessage,
  user: UserInfo,
  attributes: RequestAttributes,
): void {
  const { allowed, reason } = state.authorizer.authorize(user, attributes);
  state.accessLog?.add(request, user, attributes, allowed);
  if (!allowed) throw forbiddenError(user, attributes, reason);
}

/** Returns the resource request of a path. Throws ApiError `NotFound` for an invalid path. */
export function parseUrl(text: string): URL {
  const url = URL.parse(text, "http://server");
  if (url === null) throw noSuchResource();
  return url;
}

function attributesOf(url: URL, parsed: ResourceRequest | undefined, method: string): RequestAttributes {
  if (parsed === undefined) {
    const none = { group: "", version: "", resource: "", subresource: "", namespace: "", name: "" };
    return { ...none, verb: method === "HEAD" ? "get" : method.toLowerCase(), nonResourcePath: url.pathname };
  }
  const { resource, verb, subresource, namespace } = parsed;
  // Lists and watches that select one name are authorized for that name (apiserver pkg/endpoints/request/requestinfo.go).
  const selected = /(?:^|,)metadata\.name==?([^,]+)/.exec(url.searchParams.get("fieldSelector") ?? "")?.[1] ?? "";
  return {
    verb,
    group: resource.group,
    version: resource.version,
    resource: resource.plural,
    subresource,
    // Requests on a namespace object are authorized by the rights in that namespace.
    namespace: resource.group === "" && resource.kind === "Namespace" ? parsed.name : namespace,
    name: parsed.name === "" ? selected : parsed.name,
  };
}
