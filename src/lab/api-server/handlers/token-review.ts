import type { UserInfo } from "../auth/auth.ts";
import { asArray, asObject, asString, type JsonObject } from "../object/json.ts";

/** A token that TokenReviews know. */
export interface ReviewedToken {
  readonly user: UserInfo;
  /** Its audiences. */
  readonly audiences: readonly string[];
}

/** Tokens by their text. The caller may change it while the server runs. */
export type ReviewedTokens = ReadonlyMap<string, ReviewedToken>;

/** Answers a TokenReview of authentication.k8s.io/v1 as kube-apiserver does: `audiences` are the requested ones that the token has. */
export function answerTokenReview(body: JsonObject, tokens: ReviewedTokens): JsonObject {
  const spec = asObject(body["spec"]);
  const head = {
    kind: "TokenReview",
    apiVersion: "authentication.k8s.io/v1",
    metadata: asObject(body["metadata"]),
    spec,
  };
  const known = tokens.get(asString(spec["token"]));
  if (known === undefined) return { ...head, status: { user: {}, error: "[invalid bearer token]" } };
  const wanted = asArray(spec["audiences"]).map(asString);
  const audiences = wanted.length === 0 ? [...known.audiences] : known.audiences.filter((one) => wanted.includes(one));
  if (audiences.length === 0) {
    const error = `[token audiences ${JSON.stringify(known.audiences)} is invalid for the target audiences ${JSON.stringify(wanted)}]`;
    return { ...head, status: { user: {}, error } };
  }
  const { name: username, groups, extra } = known.user;
  const user = {
    ...{ username, groups: [...groups] },
    ...(extra === undefined
      ? {}
      : { extra: Object.fromEntries(Object.entries(extra).map(([key, values]) => [key, [...values]])) }),
  };
  return { ...head, status: { authenticated: true, user, audiences } };
}
