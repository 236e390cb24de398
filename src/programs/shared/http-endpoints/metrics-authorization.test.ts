import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { createRegistry } from "#base/metrics";
import { type KubeApi, KubeError } from "#kube/client";
import { PROGRAMS } from "../../programs.ts";
import { metricsAuthorizationFlag, metricsFromFlag, metricsLogin, serveMetrics } from "./index.ts";

/** The token `good` may read metrics, `poor` may not, and with `lost` the API server does not answer. */
const api = {
  request: async ({ body }: { readonly body?: unknown }): Promise<unknown> => {
    const { kind, spec } = body as { readonly kind: string; readonly spec: Readonly<Record<string, unknown>> };
    if (kind === "SubjectAccessReview") return { status: { allowed: spec["user"] === "good" } };
    if (spec["token"] === "lost") throw new KubeError("unreachable", "connection refused");
    const isKnown = spec["token"] === "good" || spec["token"] === "poor";
    return { status: isKnown ? { authenticated: true, user: { username: spec["token"] } } : {} };
  },
} as unknown as KubeApi;

test("--metrics-authorization: a token that may read gets metrics; others get 401, 403, and 503 while it is not known", async () => {
  const options = { metricsAddr: { host: "127.0.0.1", port: 0 }, metricsFrom: [], metricsAuthorization: true };
  await using server = await serveMetrics({ registry: createRegistry(), log: nullLogger, api }, options);
  const get = async (token?: string): Promise<[number, string]> => {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const answer = await fetch(`http://127.0.0.1:${server.port}/metrics`, { headers });
    return [answer.status, await answer.text()];
  };
  assert.match((await get("good")).join(" "), /^200 # HELP/);
  assert.deepEqual((await get())[0], 401);
  assert.deepEqual((await get("else"))[0], 401);
  assert.deepEqual(await get("poor"), [403, "the account of this token may not get /metrics (nonResourceURLs)\n"]);
  const [status, text] = await get("lost");
  assert.equal(status, 503);
  assert.ok(!text.includes("lost"));
});

test("--metrics-authorization: that the API server does not answer is logged with its reason, a line a second at most", async () => {
  const lines: unknown[] = [];
  const log = { ...nullLogger, warn: (message: string, fields?: object) => lines.push([message, fields]) };
  const login = await metricsLogin(true, { api, log, clock: new FakeClock() });
  const request = { method: "GET", path: "/metrics", authorization: ["Bearer lost"] };
  for (let at = 0; at < 15; at += 1) assert.equal((await login?.(request as never))?.status, 503);
  assert.ok(lines.length > 0 && lines.length <= 5, `${lines.length}`);
  assert.match(JSON.stringify(lines[0]), /connection refused/);
  assert.ok(!JSON.stringify(lines).includes("lost"));
});

test("--metrics-authorization: programs with a port of metrics have it, but for those without a client of the API server", async () => {
  const without: string[] = [];
  for (const { load } of Object.values(PROGRAMS)) {
    const { name, flags } = await load();
    const all = Object.values(flags);
    const has = all.includes(metricsAuthorizationFlag.metricsAuthorization);
    const serves = all.includes(metricsFromFlag.metricsFrom);
    assert.ok(serves || !has, name);
    if (serves && !has) without.push(name);
  }
  assert.deepEqual(without.sort(), ["node", "sni-router"]);
});
