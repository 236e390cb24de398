import type { UserInfo } from "../auth/auth.ts";
import { asArray, asObject, asString, type JsonObject } from "../object/json.ts";

/** A token that TokenReviews know. */
export interface ReviewedToken {
  readonly user: UserInfo;
  /** Whom it is for. */
  readonly audiences: readonly string[];
}

/** Tokens by their text. The caller may change it while the server runs. */
export type ReviewedTokens = ReadonlyMap<string, ReviewedToken>;

/** Answers a TokenReview of authentication.k8s.io/v1 as kube-apiserver does: audiences are those asked for and had. */
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
  const asked = asArray(spec["audiences"]).map(asString);
  const audiences = asked.length === 0 ? [...known.audiences] : known.audiences.filter((one) => asked.includes(one));
  if (audiences.length === 0) {
    const error = `[token audiences ${JSON.stringify(known.audiences)} is invalid for the target audiences ${JSON.stringify(asked)}]`;
    return { ...head, status: { user: {}, error } };
  }
  const user = { username: known.user.name, groups: [...known.user.groups] };
  return { ...head, status: { authenticated: true, user, audiences } };
}
