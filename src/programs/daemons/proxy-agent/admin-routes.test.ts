import assert from "node:assert/strict";
import { test } from "node:test";
import { serve } from "../../shared/http-endpoints/testing/serve.ts";
import { adminRoutes } from "./admin-routes.ts";

test("adminRoutes: metrics are redirected to the health port of the requested host", async (t) => {
  const { raw, get } = await serve(t, adminRoutes(false, 8093));
  const cases = [
    ["node1:8094", "http://node1:8093/metrics"],
    ["[::1]:8094", "http://[::1]:8093/metrics"],
    ["192.0.2.1", "http://192.0.2.1:8093/metrics"],
    ["evil/..@x", "http://127.0.0.1:8093/metrics"],
  ];
  for (const [host, location] of cases) {
    const answer = await raw(`GET /metrics HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`);
    assert.match(answer, /^HTTP\/1\.1 301 /, host);
    assert.ok(answer.includes(`location: ${location}\r\n`), answer);
  }
  assert.equal(await get("/debug/pprof/"), "404 404 page not found\n");
});
