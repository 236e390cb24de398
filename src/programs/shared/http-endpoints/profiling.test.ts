// own process: a snapshot has all that the process holds
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { nullLogger } from "#base/log";
import { profilingRoutes, serveHeapSnapshots } from "./index.ts";
import { serve } from "./testing/serve.ts";

const onBug = (error: unknown): never => {
  throw error;
};

test("profiles: neither has a secret of the process, which a snapshot has, and that is on a socket of mode 0600 alone", async (t) => {
  const secret = `token ${randomUUID()}`;
  const held = Array.from({ length: 2000 }, (_, at) => ({ secret: `${secret} ${at}`, bytes: new Array(100).fill(at) }));
  const { endpoint, bugs } = await serve(t, profilingRoutes());
  const get = async (path: string) => fetch(`http://127.0.0.1:${endpoint.port}${path}`);
  held.push(...held.map(({ bytes }, at) => ({ secret: `${secret} again ${at}`, bytes: [...bytes] })));
  const heap = await get("/debug/pprof/heap");
  assert.equal(heap.headers.get("content-disposition"), 'attachment; filename="heap.heapprofile"');
  const profile = await heap.text();
  assert.ok(
    (JSON.parse(profile) as { readonly head: { readonly children: readonly unknown[] } }).head.children.length > 0,
  );
  const cpu = await (await get("/debug/pprof/profile?seconds=0.05")).text();
  for (const body of [profile, cpu]) assert.ok(!body.includes(secret.slice(6)));
  assert.equal((await get("/debug/pprof/heap-snapshot")).status, 404);
  assert.equal((await get("/debug/pprof/profile?seconds=x")).status, 400);
  const folder = mkdtempSync(join(tmpdir(), "isthmus-heap-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "heap.sock");
  {
    await using _none = await serveHeapSnapshots({ log: nullLogger, onBug }, { path: "" });
    await using _snapshots = await serveHeapSnapshots({ log: nullLogger, onBug }, { path });
    assert.equal(statSync(path).mode & 0o777, 0o600);
    const response = await new Promise<import("node:http").IncomingMessage>((resolve, reject) =>
      request({ socketPath: path, path: "/heap.heapsnapshot" }, resolve).on("error", reject).end(),
    );
    const snapshot = await text(response);
    assert.ok(snapshot.includes(secret.slice(6)), "what would be read of it");
    assert.ok(held.length > 0);
  }
  assert.equal(statSync(path, { throwIfNoEntry: false }), undefined);
  assert.deepEqual(bugs, []);
});
