import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { KubeError } from "#kube/client";
import { AccessReviews } from "./index.ts";

const METRICS = { path: "/metrics", verb: "get" };
const bearer = (token: string): readonly string[] => [`Bearer ${token}`];

interface Review {
  readonly kind: string;
  readonly spec: Readonly<Record<string, unknown>>;
}

/** An API server that knows the token `good` of `ann`, who may read metrics, and `poor` of `bob`, who may not. */
function bed() {
  const clock = new FakeClock();
  const asked: Review[] = [];
  const state = { fault: undefined as Error | undefined, wait: Promise.resolve() };
  const users: Readonly<Record<string, string>> = { good: "ann", poor: "bob" };
  const api = {
    request: async ({ body }: { readonly body?: unknown }): Promise<unknown> => {
      const review = body as Review;
      asked.push(review);
      await state.wait;
      if (state.fault !== undefined) throw state.fault;
      if (review.kind === "SubjectAccessReview") return { status: { allowed: review.spec["user"] === "ann" } };
      const username = users[String(review.spec["token"])];
      if (username === undefined) return { status: { error: "who?" } };
      return { status: { authenticated: true, user: { username, uid: "u1", groups: ["g"], extra: { a: ["b"] } } } };
    },
  } as unknown as ConstructorParameters<typeof AccessReviews>[0]["api"];
  const reviews = new AccessReviews({ api, clock });
  const kind = async (authorization: readonly string[], question = METRICS): Promise<string> =>
    (await reviews.judge(authorization, question)).kind;
  return { clock, asked, state, reviews, kind };
}

test("AccessReviews: the token's user is asked about with all that the API server says of him, for the path and verb", async () => {
  const { asked, kind } = bed();
  assert.equal(await kind(bearer("good")), "allowed");
  assert.deepEqual(
    asked.map(({ kind: one, spec }) => [one, spec]),
    [
      ["TokenReview", { token: "good" }],
      [
        "SubjectAccessReview",
        { user: "ann", uid: "u1", groups: ["g"], extra: { a: ["b"] }, nonResourceAttributes: METRICS },
      ],
    ],
  );
});

test("AccessReviews: without a token, with several, with another scheme or a token that nobody has, nobody is let in", async () => {
  const { asked, kind } = bed();
  for (const none of [[], [""], ["Basic good"], ["Bearer "], ["Bearer a b"], [...bearer("good"), ...bearer("good")]])
    assert.equal(await kind(none), "unauthenticated", String(none));
  assert.equal(asked.length, 0);
  assert.equal(await kind(bearer("else")), "unauthenticated");
  assert.equal(await kind(["bearer good"]), "allowed");
  assert.equal(await kind(bearer("poor")), "forbidden");
});

test("AccessReviews: an allowed verdict is kept for a minute, a refused one for 10 s, each for its own path and verb", async () => {
  const { clock, asked, kind } = bed();
  await kind(bearer("good"));
  await kind(bearer("poor"));
  assert.equal(asked.length, 4);
  await clock.advance(9999);
  assert.deepEqual([await kind(bearer("good")), await kind(bearer("poor")), asked.length], ["allowed", "forbidden", 4]);
  await clock.advance(1);
  await kind(bearer("poor"));
  assert.equal(asked.length, 6);
  await clock.advance(49_999);
  await kind(bearer("good"));
  assert.equal(asked.length, 6);
  await clock.advance(1);
  await kind(bearer("good"));
  assert.equal(asked.length, 8);
  await kind(bearer("good"), { path: "/debug/pprof/profile", verb: "get" });
  await kind(bearer("good"), { path: "/metrics", verb: "head" });
  assert.equal(asked.length, 12);
});

test("AccessReviews: while the API server does not answer nobody is let in, which is not kept, and no reason has the token", async () => {
  const { state, kind, reviews } = bed();
  state.fault = new KubeError("unreachable", "connection refused");
  const access = await reviews.judge(bearer("good"), METRICS);
  assert.equal(access.kind, "unavailable");
  assert.ok(!JSON.stringify(access).includes("good"));
  state.fault = undefined;
  assert.equal(await kind(bearer("good")), "allowed");
  state.fault = new TypeError("a bug");
  await assert.rejects(kind(bearer("new")), TypeError);
});

test("AccessReviews: who asks the same meanwhile shares a review, and more than four of unknown tokens at once are refused", async () => {
  const { asked, state, kind } = bed();
  const gate = Promise.withResolvers<void>();
  state.wait = gate.promise;
  const same = [kind(bearer("good")), kind(bearer("good"))];
  const others = Array.from({ length: 4 }, (_, at) => kind(bearer(`x${at}`)));
  assert.equal(await others.at(-1), "unavailable");
  gate.resolve();
  assert.deepEqual(await Promise.all(same), ["allowed", "allowed"]);
  assert.deepEqual(await Promise.all(others.slice(0, 3)), Array(3).fill("unauthenticated"));
  assert.equal(asked.length, 5);
});

test("AccessReviews: while the API server is slow, guesses do not hold the places of a token that was allowed before, which has eight at most", async () => {
  const { clock, state, kind } = bed();
  assert.equal(await kind(bearer("good")), "allowed");
  await clock.advance(60_000);
  const gate = Promise.withResolvers<void>();
  state.wait = gate.promise;
  const guesses = Array.from({ length: 20 }, (_, at) => kind(bearer(`x${at}`)));
  const own = Array.from({ length: 5 }, (_, at) => kind(bearer("good"), { path: `/debug/${at}`, verb: "get" }));
  assert.equal(await own.at(-1), "unavailable");
  gate.resolve();
  assert.deepEqual(await Promise.all(own.slice(0, 4)), Array(4).fill("allowed"));
  assert.equal((await Promise.all(guesses)).filter((one) => one === "unauthenticated").length, 4);
});

test("AccessReviews: guesses of others have a rate, and a token that was allowed before does not wait behind them", async () => {
  const { clock, asked, kind } = bed();
  assert.equal(await kind(bearer("good")), "allowed");
  const answers: string[] = [];
  for (let at = 0; at < 100; at += 1) answers.push(await kind(bearer(`guess-${at}`)));
  assert.deepEqual(answers.slice(19), Array(81).fill("unavailable"));
  await clock.advance(60_000);
  for (let at = 0; at < 100; at += 1) await kind(bearer(`more-${at}`));
  const before = asked.length;
  assert.equal(await kind(bearer("good")), "allowed");
  assert.equal(asked.length, before + 2);
});
