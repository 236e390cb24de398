import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { KubeClient, resources, staticConnection } from "#kube/client";
import { createInformer } from "#kube/informer";
import { until } from "#test/lab";
import { configMap, MAPS, TestServer } from "./test-client.ts";

/** A connection that stays would be to the server that is gone when the next one listens on its port. */
const CLOSE = { connection: "close" };

test("informer: it follows a server whose state was restored to an older one, and that accepts its watch", {
  timeout: 20_000,
}, async () => {
  let before: TestServer | undefined = await TestServer.start();
  const port = Number(new URL(before.url).port);
  await using client = new KubeClient(staticConnection({ server: before.url }), { clock: systemClock });
  const stop = new AbortController();
  try {
    for (const name of ["a", "b", "c"]) await before.ask("POST", MAPS, configMap(name), CLOSE);
    const informer = createInformer(client, resources.configMaps, {
      namespace: "default",
      labelSelector: "!none",
      idleTimeoutMs: 300,
      clock: systemClock,
    });
    const names = (): string[] => informer.store.list().map(({ metadata }) => metadata.name);
    const running = informer.run({ signal: stop.signal });
    await informer.synced;
    assert.deepEqual(
      names()
        .filter((name) => name.length === 1)
        .sort(),
      ["a", "b", "c"],
    );
    await before[Symbol.asyncDispose]();
    before = undefined;
    await using after = await TestServer.start({ listen: { host: "127.0.0.1", port } });
    await after.ask("POST", MAPS, configMap("d"), CLOSE);
    // What is gone goes after what is new has come.
    const isBehind = (): boolean =>
      names()
        .filter((name) => name.length === 1)
        .join() === "d";
    await Promise.race([until("it has the restored state", isBehind, { seen: () => names().join() }), running]);
    assert.ok(isBehind(), names().join());
    stop.abort();
    await running;
  } finally {
    stop.abort();
    await before?.[Symbol.asyncDispose]();
  }
});
