import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "#base/clock";
import { KubeClient, resources, staticConnection } from "#kube/client";
import { createInformer } from "#kube/informer";
import { configMap, MAPS, TestServer } from "./test-client.ts";

test("informer: it follows a server whose state was restored to an older one, and that accepts its watch", {
  timeout: 20_000,
}, async () => {
  let before: TestServer | undefined = await TestServer.start();
  const port = Number(new URL(before.url).port);
  await using client = new KubeClient(staticConnection({ server: before.url }), { clock: systemClock });
  const stop = new AbortController();
  try {
    for (const name of ["a", "b", "c"]) await before.ask("POST", MAPS, configMap(name));
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
    await after.ask("POST", MAPS, configMap("d"));
    const behind = new Promise<void>((resolve) => {
      informer.addHandler({ onAdd: ({ metadata }) => metadata.name === "d" && resolve() });
    });
    await Promise.race([behind, running]);
    assert.deepEqual(
      names().filter((name) => name.length === 1),
      ["d"],
    );
    stop.abort();
    await running;
  } finally {
    stop.abort();
    await before?.[Symbol.asyncDispose]();
  }
});
