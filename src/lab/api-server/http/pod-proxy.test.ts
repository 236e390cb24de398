import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { type TestContext, test } from "node:test";
import { TestServer } from "../test-client.ts";

const TOKENS = { root: { name: "admin", groups: ["system:masters"] }, bob: { name: "bob", groups: [] } };
const POD = "/api/v1/namespaces/default/pods";

async function start(t: TestContext): Promise<{ readonly api: TestServer; readonly port: number }> {
  const pod = createServer((request, response) => {
    response.writeHead(request.url === "/readyz?verbose" ? 503 : 200, { "content-type": "text/plain" });
    response.end(`${request.method} ${request.url}\n`);
  });
  await once(pod.listen(0, "127.0.0.1"), "listening");
  t.after(() => pod.close());
  const { port } = pod.address() as AddressInfo;
  const kubelets = {
    tls: { ca: "", cert: "", key: "" },
    connect: async (place: { readonly host: string; readonly port: number }) => {
      const socket = connect(place.port, place.host);
      await once(socket, "connect");
      return socket;
    },
  };
  const api = await TestServer.start({ tokens: TOKENS, kubelets });
  t.after(() => api[Symbol.asyncDispose]());
  const containers = [{ name: "c", image: "i", ports: [{ name: "health", containerPort: port }] }];
  api.server.seed([
    {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "a", namespace: "default" },
      spec: { containers },
      status: { podIP: "127.0.0.1" },
    },
    { apiVersion: "v1", kind: "Pod", metadata: { name: "waits", namespace: "default" }, spec: { containers } },
  ]);
  return { api, port };
}

test("pods/proxy: a GET is relayed to the pod's port by number, name or none, with path, query and status", async (t) => {
  const { api, port } = await start(t);
  const get = async (path: string, token = "root"): Promise<[number, string]> => {
    const response = await fetch(api.url + path, { headers: { authorization: `Bearer ${token}` } });
    return [response.status, await response.text()];
  };
  assert.deepEqual(await get(`${POD}/a:${port}/proxy/readyz?verbose`), [503, "GET /readyz?verbose\n"]);
  assert.deepEqual(await get(`${POD}/http:a:health/proxy/metrics`), [200, "GET /metrics\n"]);
  assert.deepEqual(await get(`${POD}/a/proxy`), [200, "GET /\n"]);
  for (const [path, token, status, message] of [
    [`${POD}/a/proxy/x`, "bob", 403, /cannot get resource \\"pods\/proxy\\"/],
    [`${POD}/b:1/proxy/x`, "root", 404, /pods \\"b\\" not found/],
    [`${POD}/a:none/proxy/x`, "root", 400, /no port \\"none\\" in pod a/],
    [`${POD}/https:a:1/proxy/x`, "root", 400, /has only http/],
    [`${POD}/waits:1/proxy/x`, "root", 503, /pod waits has no address/],
    [`${POD}/a:1/proxy/x`, "root", 503, /error trying to reach service: 127\.0\.0\.1:1: .*ECONNREFUSED/],
  ] as const) {
    const [found, text] = await get(path, token);
    assert.equal(found, status, text);
    assert.match(JSON.stringify(JSON.parse(text)), message instanceof RegExp ? message : /./);
  }
});
