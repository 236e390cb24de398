import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Semaphore, sleep, withDeadline } from "#base/async";
import { FakeClock } from "#base/clock";
import { Health } from "#base/health";
import { KubeError, type RawRequest } from "#kube/client";
import { AgentAuthError } from "../server/agent-auth.ts";
import { expiryOf } from "./token-cache.ts";
import { TokenReviewAuthenticator, verdictOf } from "./token-review.ts";

const RULES = { namespace: "kube-system", serviceAccount: "agent", audience: "aud" };
const GOOD = {
  authenticated: true,
  user: { username: "system:serviceaccount:kube-system:agent" },
  audiences: ["aud"],
};
/** As in the answers below. */
const TOKEN = "0123456789abcdef.0123456789ABCDEFG.0123456789-signature";
const options = { signal: new AbortController().signal };

/** An API server that answers with one status after the other, the last one for ever. */
function authenticator(...answers: readonly (object | Error)[]) {
  const clock = new FakeClock(1_700_000_000_000);
  const requests: RawRequest[] = [];
  const api = {
    request: async (request: RawRequest): Promise<unknown> => {
      const answer = answers[Math.min(requests.length, answers.length - 1)];
      requests.push(request);
      if (answer instanceof Error) throw answer;
      return { status: answer };
    },
  };
  return { clock, requests, auth: new TokenReviewAuthenticator({ api, clock }, RULES) };
}

/** A JWT with claims; its signature is not checked here. */
function jwt(claims: object): string {
  return ["{}", JSON.stringify(claims), "signature"].map((part) => Buffer.from(part).toString("base64url")).join(".");
}

test("TokenReviewAuthenticator: reviews the token with the audience, and admits the service account", async () => {
  const { auth, requests } = authenticator(GOOD);
  await auth.authenticate(["Bearer t0ken"], options);
  assert.deepEqual(requests, [
    {
      method: "POST",
      path: "/apis/authentication.k8s.io/v1/tokenreviews",
      body: {
        apiVersion: "authentication.k8s.io/v1",
        kind: "TokenReview",
        metadata: {},
        spec: { token: "t0ken", audiences: ["aud"] },
      },
    },
  ]);
});

test("TokenReviewAuthenticator: checks at the start that the API server answers reviews, and reports why not", async () => {
  const away = new KubeError("unreachable", "connection refused");
  const { auth, clock, requests } = authenticator(away, away, { authenticated: false });
  const health = new Health();
  const proving = auth.checkApi(health.part("token-review"), options);
  await clock.advance(0);
  assert.match(health.parts[0]?.reason ?? "", /cannot have a token reviewed: .*connection refused/);
  assert.equal(health.unready.length, 1);
  await clock.advance(10_000);
  await proving;
  assert.equal(health.unready.length, 0);
  assert.equal(requests.length, 3);
});

test("TokenReviewAuthenticator: metadata that is not one Bearer token is refused without a review", async () => {
  const { auth, requests } = authenticator(GOOD);
  const cases = [
    [],
    [""],
    ["Bearer "],
    ["bearer x"],
    ["Basic x"],
    ["Bearer x y"],
    ["Bearer x\n"],
    ["Bearer x", "Bearer x"],
  ];
  for (const authorization of [...cases, [`Bearer ${"x".repeat(20_000)}`]]) {
    await assert.rejects(auth.authenticate(authorization, options), (error) => {
      assert.ok(error instanceof AgentAuthError);
      assert.equal(error.code, "unauthenticated");
      return true;
    });
  }
  assert.equal(requests.length, 0);
});

test("verdictOf: an answer that is not exactly as expected refuses", () => {
  const cases: readonly (readonly [object | undefined, RegExp])[] = [
    [undefined, /does not accept/],
    [{}, /does not accept/],
    [{ ...GOOD, authenticated: "true" }, /does not accept/],
    [{ ...GOOD, error: "token has expired" }, /token has expired/],
    [{ ...GOOD, user: {} }, /not a service account/],
    [{ ...GOOD, user: { username: "alice" } }, /"alice", which is not a service account/],
    [{ ...GOOD, user: { username: "system:serviceaccount:kube-system:agent:x" } }, /not a service account/],
    [{ ...GOOD, user: { username: "system:serviceaccount:kube-system" } }, /not a service account/],
    [{ ...GOOD, user: { username: "system:node:kube-system:agent" } }, /not a service account/],
    [{ ...GOOD, user: { username: "system:serviceaccount:default:agent" } }, /default\/agent, not kube-system\/agent/],
    [{ ...GOOD, user: { username: "system:serviceaccount:kube-system:other" } }, /kube-system\/other, not/],
    [{ ...GOOD, audiences: ["other"] }, /not for audience "aud"/],
    [{ ...GOOD, audiences: undefined }, /not for audience/],
    [{ ...GOOD, audiences: "aud" }, /not for audience/],
  ];
  for (const [status, why] of cases) {
    const verdict = verdictOf({ status }, { ...RULES, token: TOKEN });
    assert.ok(verdict.kind === "refused", JSON.stringify(status));
    assert.match(verdict.why, why);
  }
  const names = { account: "kube-system/agent", pod: undefined, node: undefined };
  assert.deepEqual(verdictOf({ status: GOOD }, { ...RULES, token: TOKEN }), { kind: "accepted", names });
});

test("verdictOf: a token of a pod names the pod and its node; anything but one text is no name", () => {
  const [pod, node] = ["authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/node-name"];
  const names = (extra: unknown): unknown => {
    const verdict = verdictOf({ status: { ...GOOD, user: { ...GOOD.user, extra } } }, { ...RULES, token: TOKEN });
    return verdict.kind === "accepted" ? [verdict.names.pod, verdict.names.node] : verdict.why;
  };
  assert.deepEqual(names({ [pod]: ["agent-x"], [node]: ["node-1"], other: ["y"] }), ["agent-x", "node-1"]);
  for (const bad of [
    undefined,
    null,
    "x",
    {},
    { [pod]: "agent-x", [node]: ["a", "b"] },
    { [node]: [1], [pod]: [""] },
  ]) {
    assert.deepEqual(names(bad), [undefined, undefined]);
  }
});

test("verdictOf: the reason of a refusal is short and has no part of the token", () => {
  const said = (error: string): string => {
    const verdict = verdictOf({ status: { error } }, { ...RULES, token: TOKEN });
    assert.ok(verdict.kind === "refused");
    return verdict.why;
  };
  assert.equal(
    said(`invalid token ${TOKEN}, I say ${TOKEN}`),
    "the API server answered: invalid token [token], I say [token]",
  );
  assert.equal(said("bad 0123456789-signature"), "the API server answered: bad [token]");
  assert.equal(said("x".repeat(100_000)).length, 200);
  assert.ok(!said(`${"x".repeat(170)}${TOKEN}`).includes(TOKEN.slice(0, 8)), "cut after it is replaced, not before");
});

test("verdictOf: any answer of an API server is a verdict", () => {
  fc.assert(
    fc.property(fc.jsonValue(), (answer) =>
      assert.equal(verdictOf(answer, { ...RULES, token: TOKEN }).kind, "refused"),
    ),
  );
  fc.assert(
    fc.property(fc.jsonValue(), (status) =>
      assert.equal(verdictOf({ status }, { ...RULES, token: TOKEN }).kind, "refused"),
    ),
  );
});

test("TokenReviewAuthenticator: an accepted token is not reviewed again for 60 s, a refused one for 10 s", async () => {
  const good = authenticator(GOOD);
  const ask = (one: typeof good): Promise<unknown> => one.auth.authenticate(["Bearer t"], options);
  await ask(good);
  await good.clock.advance(59_999);
  await ask(good);
  assert.equal(good.requests.length, 1);
  await good.clock.advance(1);
  await ask(good);
  assert.equal(good.requests.length, 2);

  const bad = authenticator({ error: "no" }, GOOD);
  await assert.rejects(ask(bad), { code: "unauthenticated" });
  await bad.clock.advance(9_999);
  await assert.rejects(ask(bad), { code: "unauthenticated" });
  assert.equal(bad.requests.length, 1);
  await bad.clock.advance(1);
  await ask(bad);
});

test("TokenReviewAuthenticator: a step of the wall clock keeps no verdict longer and drops none", async () => {
  for (const step of [-3_600_000, 3_600_000]) {
    const bad = authenticator({ error: "no" }, GOOD);
    const ask = (): Promise<unknown> => bad.auth.authenticate(["Bearer t"], options);
    await assert.rejects(ask(), { code: "unauthenticated" });
    bad.clock.jumpWall(step);
    await bad.clock.advance(9_999);
    await assert.rejects(ask(), { code: "unauthenticated" });
    assert.equal(bad.requests.length, 1);
    await bad.clock.advance(1);
    await ask();
    bad.clock.jumpWall(step);
    await bad.clock.advance(59_999);
    await ask();
    assert.equal(bad.requests.length, 2);
    await bad.clock.advance(1);
    await ask();
    assert.equal(bad.requests.length, 3);
  }
});

test("TokenReviewAuthenticator: the wall clock decides whether a token has expired", async () => {
  const { auth, clock, requests } = authenticator(GOOD, { error: "token has expired" });
  const token = `Bearer ${jwt({ exp: clock.now() / 1000 + 3600 })}`;
  await auth.authenticate([token], options);
  clock.jumpWall(3_600_000);
  await assert.rejects(auth.authenticate([token], options), { code: "unauthenticated" });
  assert.equal(requests.length, 2);
});

test("TokenReviewAuthenticator: a token is never accepted beyond its own expiry", async () => {
  const { auth, clock, requests } = authenticator(GOOD, { error: "token has expired" });
  const token = `Bearer ${jwt({ exp: clock.now() / 1000 + 5 })}`;
  await auth.authenticate([token], options);
  await clock.advance(4_999);
  await auth.authenticate([token], options);
  await clock.advance(1);
  await assert.rejects(auth.authenticate([token], options), { code: "unauthenticated" });
  assert.equal(requests.length, 2);
});

test("TokenReviewAuthenticator: an API server that fails makes no agent unauthenticated, and is tried again", async () => {
  const failures = [
    new KubeError("unreachable", "no route"),
    new KubeError("forbidden", "no"),
    new KubeError("timeout", "slow"),
  ];
  const { auth, requests } = authenticator(...failures, GOOD);
  for (const { message } of failures) {
    await assert.rejects(auth.authenticate(["Bearer t"], options), (error) => {
      assert.ok(error instanceof AgentAuthError && error.code === "unavailable");
      assert.match(error.message, new RegExp(message));
      return true;
    });
  }
  await auth.authenticate(["Bearer t"], options);
  assert.equal(requests.length, 4);
});

test("TokenReviewAuthenticator: no message contains the token", async () => {
  const { auth } = authenticator({ error: "no" });
  await assert.rejects(auth.authenticate(["Bearer s3cret"], options), (error) => !String(error).includes("s3cret"));
  await assert.rejects(auth.authenticate(["Basic s3cret"], options), (error) => !String(error).includes("s3cret"));
});

test("TokenReviewAuthenticator: the cache is bounded; the oldest entry is removed first", async () => {
  const { auth, requests } = authenticator(GOOD);
  for (let at = 0; at <= 10_000; at += 1) await auth.authenticate([`Bearer t${at}`], options);
  await auth.authenticate(["Bearer t10000"], options);
  await auth.authenticate(["Bearer t1"], options);
  assert.equal(requests.length, 10_001);
  await auth.authenticate(["Bearer t0"], options);
  assert.equal(requests.length, 10_002);
});

test("expiryOf: reads the claim of a JWT; any other token has none", () => {
  assert.equal(expiryOf(jwt({ exp: 12 })), 12_000);
  for (const token of ["", "opaque", "a.b.c", "..", jwt({}), jwt({ exp: "12" }), jwt([])]) {
    assert.equal(expiryOf(token), Number.POSITIVE_INFINITY, token);
  }
  fc.assert(fc.property(fc.string(), (token) => assert.equal(typeof expiryOf(token), "number")));
  fc.assert(fc.property(fc.jsonValue(), (claims) => assert.equal(typeof expiryOf(jwt({ claims })), "number")));
});

test("TokenReviewAuthenticator: with more agents than reviews are allowed, as many are reviewed as are allowed, and the others come again at once", async () => {
  const clock = new FakeClock(1_700_000_000_000);
  const [qps, seconds] = [5, 60];
  let reviews = 0;
  const request = async (): Promise<unknown> => {
    reviews += 1;
    return { status: GOOD };
  };
  const rateLimit = { qps, burst: 2 * qps };
  const auth = new TokenReviewAuthenticator({ api: { request }, clock }, { ...RULES, rateLimit });
  const outcomes = new Map<string, number>();
  let longestMs = 0;
  for (let at = 0; at < 200 * seconds; at += 1) {
    const since = clock.monotonic();
    const count = (how: string): void => {
      outcomes.set(how, (outcomes.get(how) ?? 0) + 1);
      longestMs = Math.max(longestMs, clock.monotonic() - since);
    };
    auth.authenticate([`Bearer agent-${at}`], options).then(
      () => count("admitted"),
      (error: unknown) => count(error instanceof AgentAuthError ? error.code : "bug"),
    );
    if (at % 20 === 19) await clock.advance(100);
  }
  assert.ok(reviews >= qps * seconds && reviews <= qps * (seconds + 2), `${reviews} reviews`);
  assert.deepEqual([...outcomes.keys()].toSorted(), ["admitted", "unavailable"]);
  // Half of the time that an agent's authentication has is left for the answer.
  assert.ok(longestMs <= 5000, `${longestMs} ms`);
  // The first question at the start waits for nobody.
  await auth.checkApi(new Health().part("token-review"), options);
  assert.ok(reviews > qps * seconds);
});

test("TokenReviewAuthenticator: an API server that answers more slowly than agents come admits as many as it answers", async () => {
  const clock = new FakeClock(1_700_000_000_000);
  const answerMs = 1000;
  // As the client: 32 requests at once, and others wait within their own time.
  const connections = new Semaphore(32);
  const request = (
    _: RawRequest,
    { timeoutMs = 0 }: { readonly timeoutMs?: number | undefined } = {},
  ): Promise<unknown> =>
    withDeadline(
      timeoutMs,
      (signal) => connections.run(() => sleep(answerMs, { signal, clock }), { signal }).then(() => ({ status: GOOD })),
      { clock },
    ).catch((error: unknown) => {
      throw new KubeError("timeout", "no answer", { cause: error });
    });
  const auth = new TokenReviewAuthenticator({ api: { request }, clock }, RULES);
  const outcomes = new Map<string, number>();
  const count = (how: string): void => void outcomes.set(how, (outcomes.get(how) ?? 0) + 1);
  for (let at = 0; at < 200 * 60; at += 1) {
    auth.authenticate([`Bearer agent-${at}`], options).then(
      () => count("admitted"),
      (error: unknown) => count(error instanceof AgentAuthError ? error.code : "bug"),
    );
    if (at % 20 === 19) await clock.advance(100);
  }
  await clock.advance(10_000);
  assert.deepEqual([...outcomes.keys()].toSorted(), ["admitted", "unavailable"]);
  assert.ok((outcomes.get("admitted") ?? 0) > 32 * 58, `${outcomes.get("admitted")} of ${200 * 60} were admitted`);
});
