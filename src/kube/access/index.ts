/**
 * Asks who a bearer token is, and whether it may read a path of a program: a TokenReview and a SubjectAccessReview, as controller-runtime's programs ask for their metrics.
 *
 * Owns: the reviews, their cache and their bounds. Does not know: what is behind the path, and how the answer is told.
 *
 * ```ts
 * const reviews = new AccessReviews({ api, clock });
 * const access = await reviews.judge(["Bearer TOKEN"], { path: "/metrics", verb: "get" });
 * ```
 */
export { type Access, AccessReviews } from "./access-reviews.ts";
