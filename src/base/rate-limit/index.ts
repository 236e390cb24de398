/**
 * Rate limits: a number of actions at once (the burst), then a number of actions a second.
 *
 * Owns: counting tokens, waiting for one, and the lines of a log that peers can cause. Does not know: the limited thing, and what happens to excess actions.
 *
 * ```ts
 * const bucket = new TokenBucket({ ratePerSecond: 5, burst: 10 });
 * if (!bucket.tryTake()) return "too many"; // a caller that refuses
 * await bucket.take({ signal }); // a caller that waits
 * ```
 */
export { RateLimitedLog } from "./rate-limited-log.ts";
export { TokenBucket } from "./token-bucket.ts";
