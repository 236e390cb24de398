import assert from "node:assert/strict";
import { request as httpRequest } from "node:http";
import { text } from "node:stream/consumers";
import { type TestContext, test } from "node:test";
import type { KubeObject } from "../object/meta.ts";
import { pod as podOf, TestServer } from "../test-client.ts";
import { execTarget, kubeletOf } from "./kubelet-request.ts";

const TOKENS = { root: { name: "admin", groups: ["system:masters"] }, bob: { name: "bob", groups: [] } };

/** Status and body of a request to change the protocol that is refused. */
async function refusal(api: TestServer, path: string, token: string, upgrade = "websocket"): Promise<[number, string]> {
  const { promise, resolve, reject } = Promise.withResolvers<[number, string]>();
  const request = httpRequest(`${api.url}${path}`, {
    headers: { connection: "Upgrade", upgrade, authorization: `Bearer ${token}` },
  });
  request.once("response", (response) => {
    text(response).then((body) => {
      const { message }: { message: string } = JSON.parse(body);
      resolve([response.statusCode ?? 0, message]);
    }, reject);
  });
  request.once("upgrade", () => reject(new Error("it was not refused")));
  request.once("error", reject);
  request.end();
  return promise;
}

async function start(t: TestContext, withKubelets: boolean): Promise<TestServer> {
  const kubelets = {
    tls: { ca: "", cert: "", key: "" },
    connect: ({ host, port }: { host: string; port: number }) => Promise.reject(new Error(`nobody at ${host} ${port}`)),
  };
  const api = await TestServer.start({ tokens: TOKENS, ...(withKubelets ? { kubelets } : {}) });
  t.after(() => api[Symbol.asyncDispose]());
  api.server.seed([
    {
      apiVersion: "v1",
      kind: "Node",
      metadata: { name: "node1" },
      status: { addresses: [{ type: "InternalIP", address: "192.0.2.1" }] },
    },
    {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "a", namespace: "default" },
      spec: { nodeName: "node1", containers: [{ name: "c" }] },
    },
    {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "waits", namespace: "default" },
      spec: { containers: [{ name: "c" }] },
    },
  ]);
  return api;
}

const EXEC = "/api/v1/namespaces/default/pods/a/exec?command=id&stdout=1";

test("upgrade: exec is refused with a Status that has the reason", async (t) => {
  const api = await start(t, true);
  const cases = [
    [EXEC, "nobody", "websocket", 401, /^Unauthorized$/],
    [EXEC, "bob", "websocket", 403, /^pods "a" is forbidden: User "bob" cannot get resource "pods\/exec"/],
    [EXEC.replace("/a/", "/b/"), "root", "websocket", 404, /^pods "b" not found$/],
    [EXEC.replace("/a/", "/waits/"), "root", "websocket", 400, /^pod waits does not have a host assigned$/],
    [EXEC, "root", "SPDY/3.1", 400, /this server speaks WebSockets/],
    ["/version", "root", "websocket", 400, /only pods\/exec is served so$/],
    ["/api/v1/namespaces/default/pods/a", "root", "websocket", 400, /only pods\/exec is served so$/],
    [EXEC, "root", "websocket", 500, /^error dialing backend: 192\.0\.2\.1:10250: nobody at 192\.0\.2\.1 10250$/],
  ] as const;
  for (const [path, token, protocol, wanted, words] of cases) {
    const [status, message] = await refusal(api, path, token, protocol);
    assert.equal(status, wanted, `${path}: ${message}`);
    assert.match(message, words);
  }
  const { status, body } = await api.ask("GET", EXEC, undefined, { authorization: "Bearer root" });
  assert.deepEqual([status, body["message"]], [400, "Upgrade request required"]);
});

test("upgrade: a server without access to its nodes refuses with that reason", async (t) => {
  const api = await start(t, false);
  const [status, message] = await refusal(api, EXEC, "root");
  assert.deepEqual([status, message], [501, "pods/exec is not served: this API server has no access to its nodes"]);
});

test("execTarget: translates a client's request for the kubelet, with the container", () => {
  const pod = (names: readonly string[], annotations = {}): KubeObject =>
    ({
      ...podOf("a"),
      metadata: { name: "a", namespace: "default", annotations },
      spec: { nodeName: "node1", containers: names.map((name) => ({ name })) },
    }) as unknown as KubeObject;
  const asked = new URLSearchParams("command=sh&command=-c&command=a%26b&stdin=true&stdout=1&tty=false&container=");
  assert.equal(execTarget(pod(["c"]), asked), "/exec/default/a/c?command=sh&command=-c&command=a%26b&input=1&output=1");
  const two = pod(["c", "d"]);
  assert.throws(
    () => execTarget(two, new URLSearchParams()),
    /a container name must be specified for pod a, choose one of: \[c d\]/,
  );
  assert.match(execTarget(two, new URLSearchParams("container=d")), /^\/exec\/default\/a\/d\?/);
  assert.throws(() => execTarget(two, new URLSearchParams("container=e")), /container e is not valid for pod a/);
  const marked = pod(["c", "d"], { "kubectl.kubernetes.io/default-container": "d" });
  assert.match(execTarget(marked, new URLSearchParams()), /^\/exec\/default\/a\/d\?/);
});

test("kubeletOf: the node's address, and its port if the Node has one", () => {
  const node = (status: object): KubeObject =>
    ({ apiVersion: "v1", kind: "Node", metadata: { name: "n" }, status }) as unknown as KubeObject;
  const addresses = [
    { type: "Hostname", address: "n" },
    { type: "InternalIP", address: "2001:db8::1" },
  ];
  assert.deepEqual(kubeletOf(node({ addresses })), { host: "2001:db8::1", port: 10_250 });
  const daemonEndpoints = { kubeletEndpoint: { Port: 10_255 } };
  assert.deepEqual(kubeletOf(node({ addresses, daemonEndpoints })), { host: "2001:db8::1", port: 10_255 });
  assert.throws(() => kubeletOf(node({})), /no preferred addresses found/);
});
