import assert from "node:assert/strict";
import { once } from "node:events";
import { constants, createSecureServer, type ServerHttp2Stream } from "node:http2";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { systemClock } from "#base/clock";
import { createAuthority, issueServerCertificate } from "#base/x509";
import { isKubeError, KubeClient, resources, staticConnection } from "#kube/client";
import { createInformer } from "./index.ts";

const TIMEOUT = { timeout: 20_000 };

/** Ways in which a server, or something between, ends an answer whose body has begun. `near` is the client's side of the connection. */
const BREAKS: Readonly<Record<string, (stream: ServerHttp2Stream, near: readonly Socket[]) => void>> = {
  // As RST_STREAM with INTERNAL_ERROR; `close` would end the body in order first.
  "a reset of the stream": (stream) => stream.destroy(new Error("the server fails")),
  "a GOAWAY with an error": (stream) => stream.session?.goaway(constants.NGHTTP2_INTERNAL_ERROR),
  "the end of the session": (stream) => stream.session?.destroy(new Error("the server ends")),
  "a reset of the connection": (_stream, near) => {
    for (const socket of near) socket.resetAndDestroy();
  },
  "bytes that are not TLS": (_stream, near) => {
    for (const socket of near) socket.write("HTTP/1.1 502 Bad Gateway\r\n\r\n");
  },
};

async function listen(t: TestContext, server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

const pod = (name: string, resourceVersion: string): object => ({
  metadata: { name, namespace: "d", uid: `uid-${name}`, resourceVersion },
});
const added = (name: string, resourceVersion: string): string =>
  `${JSON.stringify({ type: "ADDED", object: pod(name, resourceVersion) })}\n`;

/** An API server over HTTP/2, as real ones are, whose first body of this kind is broken in the middle. Later watches stay open. */
async function brokenServer(t: TestContext, kind: "list" | "watch", fault: (typeof BREAKS)[string]) {
  const names = { organization: "test", notBefore: Date.now() - 3_600_000, notAfter: Date.now() + 3_600_000 };
  const ca = createAuthority({ commonName: "ca", ...names });
  const { cert, key } = issueServerCertificate(ca, { hosts: ["127.0.0.1"], ...names });
  const requests: URL[] = [];
  const near: Socket[] = [];
  const server = createSecureServer({ cert, key });
  // Errors of the server's own side are those that the test makes.
  server.on("sessionError", () => undefined);
  let broken = false;
  server.on("stream", (stream, headers) => {
    stream.on("error", () => undefined);
    const url = new URL(headers[":path"] ?? "", "https://server");
    requests.push(url);
    const isWatch = url.searchParams.has("watch");
    stream.respond({ ":status": 200, "content-type": "application/json" });
    const breaks = !broken && isWatch === (kind === "watch");
    broken ||= breaks;
    if (isWatch) stream.write(breaks ? added("a", "2") : added("b", "3"));
    else if (breaks) stream.write('{"kind":"PodList",');
    else stream.end(JSON.stringify({ kind: "PodList", metadata: { resourceVersion: "1" }, items: [] }));
    // The body's first bytes arrive before it breaks.
    if (breaks) setTimeout(() => fault?.(stream, near), 50);
  });
  const target = await listen(t, server);
  const address = createServer((client) => {
    near.push(client);
    const far = connect(target, "127.0.0.1");
    for (const [from, to] of [
      [client, far],
      [far, client],
    ] as const) {
      from.on("data", (bytes) => to.write(bytes));
      from.on("error", () => undefined).on("close", () => to.destroy());
      t.after(() => from.destroy());
    }
  });
  const port = await listen(t, address);
  const connection = staticConnection({ server: `https://127.0.0.1:${port}`, token: "t0ken", ca: ca.cert });
  const client = new KubeClient(connection, { clock: systemClock });
  t.after(() => client[Symbol.asyncDispose]());
  return { client, requests };
}

for (const [name, fault] of Object.entries(BREAKS)) {
  test(`watch: ${name} in mid-body is unreachable`, TIMEOUT, async (t) => {
    const { client } = await brokenServer(t, "watch", fault);
    const seen: string[] = [];
    const watching = async (): Promise<void> => {
      for await (const event of client.watch(resources.pods, { resourceVersion: "1" }))
        if (event.type === "ADDED") seen.push(event.object.metadata.name);
    };
    await assert.rejects(watching(), (error) => {
      assert.ok(isKubeError(error, "unreachable"), String(error));
      assert.match(error.message, /^Cannot watch pods: the connection of the watch failed: /);
      return true;
    });
    assert.deepEqual(seen, ["a"]);
  });

  test(`list: ${name} in mid-body is repeated`, TIMEOUT, async (t) => {
    const { client, requests } = await brokenServer(t, "list", fault);
    assert.deepEqual((await client.list(resources.pods)).items, []);
    assert.equal(requests.length, 2);
  });

  test(`informer: after ${name} in mid-body the watch goes on`, TIMEOUT, async (t) => {
    const { client, requests } = await brokenServer(t, "watch", fault);
    const stop = new AbortController();
    const informer = createInformer(client, resources.pods, { clock: systemClock });
    const both = new Promise<void>((resolve) => {
      informer.addHandler({ onAdd: () => informer.store.size === 2 && resolve() });
    });
    const running = informer.run({ signal: stop.signal });
    await Promise.race([both, running]);
    assert.deepEqual(
      requests.map((url) => url.searchParams.get("resourceVersion")),
      [null, "1", "2"],
    );
    stop.abort();
    await running;
  });
}
