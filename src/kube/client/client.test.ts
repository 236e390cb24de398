import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import {
  findObject,
  isKubeError,
  KubeClient,
  type KubeClientOptions,
  type KubeConnection,
  type KubeErrorCode,
  type RequestSample,
  resources,
  staticConnection,
} from "./index.ts";

interface Seen {
  readonly method: string;
  readonly url: URL;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}
type Script = (seen: Seen, response: ServerResponse, request: IncomingMessage) => void;

/** An HTTP server whose n-th answer is the n-th script; the last one repeats. */
class ScriptedServer implements AsyncDisposable {
  readonly seen: Seen[] = [];
  readonly #server = createServer((request, response) => this.#answer(request, response));
  readonly #scripts: Script[];

  private constructor(scripts: Script[]) {
    this.#scripts = scripts;
  }

  static async start(...scripts: Script[]): Promise<ScriptedServer> {
    const server = new ScriptedServer(scripts);
    await new Promise<void>((resolve) => server.#server.listen(0, "127.0.0.1", resolve));
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  client(options: KubeClientOptions = {}): KubeClient {
    return new KubeClient(staticConnection({ server: this.url, token: "t0ken" }), options);
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    let body = "";
    request.setEncoding("utf8");
    request.on("data", (chunk: string) => {
      body += chunk;
    });
    request.on("end", () => {
      const seen = {
        method: request.method ?? "",
        url: new URL(request.url ?? "", "http://server"),
        headers: request.headers,
        body,
      };
      const script = this.#scripts[Math.min(this.seen.length, this.#scripts.length - 1)];
      this.seen.push(seen);
      script?.(seen, response, request);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    await closed;
  }
}

const json =
  (value: unknown, status = 200, headers: Record<string, string> = {}): Script =>
  (_seen, response) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify(value));
  };
const status = (code: number, reason: string, message = "said the server"): Script =>
  json({ kind: "Status", apiVersion: "v1", status: "Failure", code, reason, message }, code);
const reset: Script = (_seen, _response, request) => request.socket.resetAndDestroy();
const pod = (name: string, resourceVersion = "1"): object => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, namespace: "default", uid: `uid-${name}`, resourceVersion },
});
const rejectsWith = (work: Promise<unknown>, code: KubeErrorCode, pattern: RegExp): Promise<void> =>
  assert.rejects(work, (error) => {
    assert.ok(isKubeError(error, code), `expected ${code}, got ${error}`);
    assert.match(error.message, pattern);
    return true;
  });

test("get: asks for the object's path with the token", async () => {
  await using server = await ScriptedServer.start(json(pod("a")));
  await using client = server.client();
  const got = await client.get(resources.pods, { name: "a", namespace: "default" });
  assert.equal(got.metadata.uid, "uid-a");
  assert.equal(server.seen[0]?.url.pathname, "/api/v1/namespaces/default/pods/a");
  assert.equal(server.seen[0]?.headers.authorization, "Bearer t0ken");
});

test("get: a name that would leave the path is refused without a request", async () => {
  await using server = await ScriptedServer.start(json(pod("a")));
  await using client = server.client();
  for (const name of ["", "..", "a/b", "a%2f"]) {
    await rejectsWith(client.get(resources.pods, { name, namespace: "default" }), "invalid", /cannot be the name/);
  }
  await rejectsWith(client.get(resources.pods, { name: "a" }), "invalid", /are namespaced/);
  await rejectsWith(client.get(resources.nodes, { name: "a", namespace: "x" }), "invalid", /cluster-scoped/);
  assert.equal(server.seen.length, 0);
});

test("errors: each HTTP status has its code, with the server's words and Status", async () => {
  const cases: [number, string, KubeErrorCode][] = [
    [400, "BadRequest", "invalid"],
    [403, "Forbidden", "forbidden"],
    [404, "NotFound", "not-found"],
    [409, "AlreadyExists", "already-exists"],
    [409, "Conflict", "conflict"],
    [410, "Expired", "gone"],
    [422, "Invalid", "invalid"],
    [500, "InternalError", "server"],
    [503, "ServiceUnavailable", "server"],
  ];
  for (const [code, reason, expected] of cases) {
    await using server = await ScriptedServer.start(status(code, reason));
    await using client = server.client();
    const work = client.create(resources.pods, { metadata: { name: "a", namespace: "default" } });
    await rejectsWith(work, expected, /^Cannot create pods default\/a: said the server \(\d+ \w+ from 127/);
    await assert.rejects(work, { httpStatus: code });
    assert.equal(server.seen.length, 1, `${code} of a write is not retried`);
  }
});

test("errors: an answer that is not JSON keeps its first line", async () => {
  await using server = await ScriptedServer.start((_seen, response) => {
    response.writeHead(502);
    response.end("<html>bad gateway\nmore");
  });
  await using client = server.client();
  await rejectsWith(client.get(resources.nodes, { name: "n" }), "server", /<html>bad gateway \(502/);
});

test("errors: a truncated or senseless success is not taken for an object", async () => {
  const bodies: [string, RegExp][] = [
    ['{"metadata":{"na', /not JSON/],
    ["[]", /not an object/],
    ['{"kind":"Pod"}', /no metadata.name/],
  ];
  for (const [body, pattern] of bodies) {
    await using server = await ScriptedServer.start((_seen, response) => response.end(body));
    await using client = server.client();
    await rejectsWith(client.get(resources.nodes, { name: "n" }), "bad-response", pattern);
  }
});

test("errors: a body that breaks off is unreachable, for a write without a second try", async () => {
  await using server = await ScriptedServer.start((_seen, response, request) => {
    response.writeHead(200, { "content-length": "1000" });
    response.write('{"metadata":', () => request.socket.destroy());
  });
  await using client = server.client();
  const work = client.create(resources.nodes, { metadata: { name: "n" } });
  await rejectsWith(work, "unreachable", /broke off|did not answer/);
  assert.equal(server.seen.length, 1);
});

test("retry: a read is sent again after a connection reset, a write is not", async () => {
  await using server = await ScriptedServer.start(reset, json(pod("a")), reset);
  await using client = server.client();
  assert.equal((await client.get(resources.pods, { name: "a", namespace: "default" })).metadata.name, "a");
  const write = client.create(resources.pods, { metadata: { name: "a", namespace: "default" } });
  await rejectsWith(write, "unreachable", /create pods default\/a/);
  assert.equal(server.seen.length, 3);
});

test("retry: 429 is sent again after Retry-After, writes too", async () => {
  const busy = json({ kind: "Status", reason: "TooManyRequests" }, 429, { "retry-after": "0" });
  await using server = await ScriptedServer.start(busy, busy, json(pod("a")));
  await using client = server.client();
  await client.create(resources.pods, { metadata: { name: "a", namespace: "default" } });
  assert.equal(server.seen.length, 3);
});

test("retry: 401 makes the connection get new credentials once", async () => {
  await using server = await ScriptedServer.start(
    status(401, "Unauthorized"),
    json(pod("a")),
    status(401, "Unauthorized"),
  );
  let token = "old";
  const base = staticConnection({ server: server.url });
  const connection: KubeConnection = {
    ...base,
    credentials: async () => ({ headers: { authorization: `Bearer ${token}` } }),
    expire: () => {
      token = "new";
    },
  };
  await using client = new KubeClient(connection);
  await client.get(resources.pods, { name: "a", namespace: "default" });
  assert.deepEqual(
    server.seen.map((seen) => seen.headers.authorization),
    ["Bearer old", "Bearer new"],
  );
  await rejectsWith(client.get(resources.nodes, { name: "n" }), "unauthorized", /401/);
  assert.equal(server.seen.length, 4);
});

test("timeout: a server that does not answer, or only begins to, is given up", async () => {
  const silent: Script = () => undefined;
  const slow: Script = (_seen, response) => {
    response.writeHead(200);
    response.write("{");
  };
  for (const script of [silent, slow]) {
    await using server = await ScriptedServer.start(script);
    await using client = server.client();
    await rejectsWith(client.get(resources.nodes, { name: "n" }, { timeoutMs: 60 }), "timeout", /in 60 ms/);
  }
});

test("abort: the call rejects with the signal's reason", async () => {
  await using server = await ScriptedServer.start(() => stop.abort(reason));
  await using client = server.client();
  const stop = new AbortController();
  const reason = new Error("enough");
  await assert.rejects(client.get(resources.nodes, { name: "n" }, { signal: stop.signal }), reason);
});

test("unreachable: nobody listens", async () => {
  let url = "";
  {
    await using server = await ScriptedServer.start(reset);
    url = server.url;
  }
  await using client = new KubeClient(staticConnection({ server: url }));
  await rejectsWith(client.get(resources.nodes, { name: "n" }), "unreachable", /ECONNREFUSED/);
});

test("findObject: not found is undefined, other failures are not hidden", async () => {
  await using server = await ScriptedServer.start(status(404, "NotFound"), status(403, "Forbidden"));
  await using client = server.client();
  assert.equal(await findObject(client, resources.nodes, { name: "n" }), undefined);
  await rejectsWith(findObject(client, resources.nodes, { name: "n" }), "forbidden", /403/);
});

const page = (names: string[], version: string, token?: string): Script =>
  json({
    kind: "PodList",
    metadata: { resourceVersion: version, ...(token === undefined ? {} : { continue: token }) },
    items: names.map((name) => ({ metadata: { name, namespace: "default", uid: name, resourceVersion: "1" } })),
  });

test("listAll: follows continue tokens and completes kind and apiVersion of the items", async () => {
  await using server = await ScriptedServer.start(page(["a", "b"], "7", "next"), page(["c"], "7"));
  await using client = server.client();
  const { items, resourceVersion } = await client.listAll(resources.pods, { limit: 2, labelSelector: "x in (y,z)" });
  assert.deepEqual(
    items.map((item) => `${item.apiVersion} ${item.kind} ${item.metadata.name}`),
    ["v1 Pod a", "v1 Pod b", "v1 Pod c"],
  );
  assert.equal(resourceVersion, "7");
  assert.equal(server.seen[0]?.url.search, "?labelSelector=x+in+%28y%2Cz%29&limit=2");
  assert.equal(server.seen[1]?.url.searchParams.get("continue"), "next");
});

test("listAll: a snapshot that expires midway is read again from the start", async () => {
  await using server = await ScriptedServer.start(
    page(["a"], "7", "t"),
    status(410, "Expired"),
    page(["a"], "9", "u"),
    page(["b"], "9"),
  );
  await using client = server.client();
  const { items, resourceVersion } = await client.listAll(resources.pods);
  assert.deepEqual([items.length, resourceVersion, server.seen.length], [2, "9", 4]);
});

test("listAll: a failure that is not an expired snapshot is not tried again", async () => {
  await using server = await ScriptedServer.start(page(["a"], "7", "t"), status(403, "Forbidden"));
  await using client = server.client();
  await rejectsWith(client.listAll(resources.pods), "forbidden", /403/);
  assert.equal(server.seen.length, 2);
});

test("listPages: a server that repeats its token does not hold us for ever", async () => {
  await using server = await ScriptedServer.start(page(["a"], "7", "t"));
  await using client = server.client();
  await rejectsWith(client.listAll(resources.pods), "bad-response", /repeats the same page/);
});

test("patch: each type has its media type, apply its manager and the object's identity", async () => {
  await using server = await ScriptedServer.start(json(pod("a")));
  await using client = server.client();
  const ref = { name: "a", namespace: "default" };
  await client.patch(resources.pods, ref, { type: "json", operations: [{ op: "remove", path: "/metadata/labels/x" }] });
  await client.patch(
    resources.pods,
    ref,
    { type: "merge", body: { metadata: { labels: { x: null } } } },
    { subresource: "status" },
  );
  await client.patch(
    resources.pods,
    ref,
    { type: "strategic", body: { spec: {} } },
    { dryRun: true, fieldManager: "me" },
  );
  await client.patch(resources.pods, ref, {
    type: "apply",
    body: { metadata: { labels: { a: "b" } } },
    fieldManager: "coil",
    force: true,
  });
  assert.deepEqual(
    server.seen.map((seen) => [seen.headers["content-type"], seen.url.pathname.slice(27) + seen.url.search]),
    [
      ["application/json-patch+json", "pods/a"],
      ["application/merge-patch+json", "pods/a/status"],
      ["application/strategic-merge-patch+json", "pods/a?fieldManager=me&dryRun=All"],
      ["application/apply-patch+yaml", "pods/a?fieldManager=coil&force=true"],
    ],
  );
  assert.deepEqual(JSON.parse(server.seen[3]?.body ?? ""), {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { labels: { a: "b" }, name: "a", namespace: "default" },
  });
});

test("delete: sends preconditions and tells gone from going", async () => {
  await using server = await ScriptedServer.start(json({ kind: "Status", status: "Success" }), json(pod("a")));
  await using client = server.client();
  const ref = { name: "a", namespace: "default" };
  const gone = await client.delete(resources.pods, ref, {
    preconditions: { uid: "u", resourceVersion: "3" },
    propagationPolicy: "Foreground",
  });
  assert.equal(gone.kind, "status");
  assert.deepEqual(JSON.parse(server.seen[0]?.body ?? ""), {
    apiVersion: "v1",
    kind: "DeleteOptions",
    preconditions: { uid: "u", resourceVersion: "3" },
    propagationPolicy: "Foreground",
  });
  const going = await client.delete(resources.pods, ref);
  assert.equal(going.kind === "object" && going.object.metadata.name, "a");
});

const stream =
  (...chunks: string[]): Script =>
  async (_seen, response) => {
    response.writeHead(200);
    for (const chunk of chunks)
      await new Promise<void>((resolve) => response.write(chunk, () => setImmediate(resolve)));
    response.end();
  };
const event = (type: string, object: object): string => `${JSON.stringify({ type, object })}\n`;

test("watch: yields events across chunk borders, and ends when the server ends it", async () => {
  const text =
    event("ADDED", pod("ä", "5")) +
    event("BOOKMARK", { metadata: { resourceVersion: "9" } }) +
    event("DELETED", pod("ä", "10"));
  await using server = await ScriptedServer.start(stream(text.slice(0, 20), text.slice(20, 75), text.slice(75)));
  await using client = server.client();
  const got: string[] = [];
  let opened = 0;
  const onOpen = (): void => {
    opened += 1;
  };
  for await (const change of client.watch(resources.pods, { resourceVersion: "4", timeoutSeconds: 60, onOpen })) {
    got.push(
      change.type === "BOOKMARK"
        ? `BOOKMARK ${change.resourceVersion}`
        : `${change.type} ${change.object.metadata.name}`,
    );
  }
  assert.deepEqual(got, ["ADDED ä", "BOOKMARK 9", "DELETED ä"]);
  assert.equal(opened, 1);
  assert.equal(server.seen[0]?.url.search, "?watch=true&allowWatchBookmarks=true&resourceVersion=4&timeoutSeconds=60");
});

async function collect(events: AsyncIterable<unknown>): Promise<number> {
  let count = 0;
  for await (const _event of events) count += 1;
  return count;
}

test("watch: 410 as a status or as an event is gone", async () => {
  const expired = { kind: "Status", code: 410, reason: "Expired", message: "too old resource version" };
  await using server = await ScriptedServer.start(json(expired, 410), stream(event("ERROR", expired)));
  await using client = server.client();
  await rejectsWith(collect(client.watch(resources.pods)), "gone", /too old resource version/);
  await rejectsWith(collect(client.watch(resources.pods)), "gone", /too old resource version/);
});

test("watch: broken off within an event, reset, or senseless: each is an error of ours", async () => {
  const cut: Script = (_seen, response, request) => {
    response.writeHead(200);
    response.write(event("ADDED", pod("a")), () => setImmediate(() => request.socket.resetAndDestroy()));
  };
  await using server = await ScriptedServer.start(
    stream('{"type":"ADDED","obj'),
    cut,
    stream("nonsense\n"),
    stream('{"type":"X"}\n'),
  );
  await using client = server.client();
  await rejectsWith(collect(client.watch(resources.pods)), "unreachable", /within an event/);
  await rejectsWith(collect(client.watch(resources.pods)), "unreachable", /broke off/);
  await rejectsWith(collect(client.watch(resources.pods)), "bad-response", /not JSON/);
  await rejectsWith(collect(client.watch(resources.pods)), "bad-response", /not a watch event/);
});

test("watch: silence for the idle time ends it", async () => {
  await using server = await ScriptedServer.start((_seen, response) => {
    response.writeHead(200);
    response.write(event("ADDED", pod("a")));
  });
  await using client = server.client();
  await rejectsWith(
    collect(client.watch(resources.pods, { idleTimeoutMs: 50 })),
    "unreachable",
    /nothing came for 50 ms/,
  );
});

test("watch: aborting, and leaving the loop, close the connection", async () => {
  const closed: string[] = [];
  const hang: Script = (seen, response) => {
    response.on("close", () => closed.push(seen.url.searchParams.get("labelSelector") ?? ""));
    response.writeHead(200);
    response.write(event("ADDED", pod("a")));
  };
  await using server = await ScriptedServer.start(hang);
  await using client = server.client();
  const stop = new AbortController();
  const reason = new Error("enough");
  await assert.rejects(async () => {
    for await (const _event of client.watch(resources.pods, { labelSelector: "a", signal: stop.signal }))
      stop.abort(reason);
  }, reason);
  for await (const _event of client.watch(resources.pods, { labelSelector: "b" })) break;
  while (closed.length < 2) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(closed.sort(), ["a", "b"]);
});

test("metrics: each request on the wire is told, failures as <error>", async () => {
  await using server = await ScriptedServer.start(reset, json(pod("a")), status(404, "NotFound"));
  const samples: RequestSample[] = [];
  await using client = server.client({ onRequest: (sample) => samples.push(sample) });
  await client.get(resources.pods, { name: "a", namespace: "default" });
  await findObject(client, resources.nodes, { name: "n" });
  assert.deepEqual(
    samples.map(({ method, code }) => `${method} ${code}`),
    ["GET <error>", "GET 200", "GET 404"],
  );
});

test("rateLimit: calls past the burst wait", async () => {
  await using server = await ScriptedServer.start(json(pod("a")));
  await using client = server.client({ rateLimit: { qps: 0.001, burst: 1 } });
  await client.get(resources.nodes, { name: "n" });
  await rejectsWith(client.get(resources.nodes, { name: "n" }, { timeoutMs: 30 }), "timeout", /30 ms/);
  assert.equal(server.seen.length, 1);
});
