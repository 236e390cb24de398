import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr } from "#base/ip";
import type { EndpointRequest } from "./answer.ts";
import { answerByPath, hostNameOf, MetricsClients } from "./index.ts";
import { isForeignName } from "./routes.ts";

const REQUEST: EndpointRequest = {
  ...{ method: "GET", path: "/", query: new URLSearchParams(), host: "localhost", from: "127.0.0.1", to: "127.0.0.1" },
  ...{ authorization: [], signal: new AbortController().signal },
};

test("answerByPath: a page in a browser of this machine gets health and metrics under a name of its own, and nothing else", async () => {
  const routes = {
    "/debug/": () => ({ body: "secret" }),
    "/metrics": () => ({ body: "m" }),
    "/healthz": () => ({ body: "h" }),
  };
  const status = async (path: string, about: Partial<EndpointRequest>): Promise<number> =>
    (await answerByPath(routes, { ...REQUEST, ...about, path })).status ?? 200;
  for (const host of [
    "evil.example",
    "evil.example:8095",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "\\",
    "[::1",
    "a b",
  ]) {
    for (const to of ["127.0.0.1", "::1", "::ffff:127.0.0.1"]) {
      assert.equal(await status("/debug/x", { host, to }), 403, host);
      assert.equal(await status("/metrics", { host, to }), 200);
      assert.equal(await status("/healthz", { host, to }), 200);
    }
    assert.equal(await status("/debug/x", { host, to: "192.0.2.1" }), 200, "Prometheus has names for its targets");
    assert.equal(await status("/debug/x", { host, to: undefined }), 200, "a UNIX socket has a mode");
  }
  for (const host of ["", "localhost", "LOCALHOST:8095", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:8095"])
    assert.equal(await status("/debug/x", { host }), 200, host);
  assert.equal(await status("/other", { host: "evil.example" }), 404);
});

test("answerByPath: who may not read metrics reads health alone, and is told why", async () => {
  let refused = 0;
  const clients = new MetricsClients([Cidr.parse("198.51.100.0/24")], { onRefused: () => (refused += 1) });
  const paths = ["/debug/", "/metrics", "/configz", "/healthz", "/livez", "/readyz", "/ready"];
  const routes = Object.fromEntries(paths.map((path) => [path, () => ({ body: "b" })]));
  const ask = async (path: string, from: string) =>
    await answerByPath(routes, { ...REQUEST, path, from, to: "192.0.2.1" }, { clients });
  for (const path of ["/debug/pprof", "/metrics", "/configz"]) {
    const body = "your address is not in --metrics-from: only health is for you here\n";
    assert.deepEqual(await ask(path, "203.0.113.7"), { status: 403, body }, path);
    assert.deepEqual(await ask(path, "198.51.100.7"), { body: "b" }, path);
  }
  for (const path of ["/healthz", "/livez", "/readyz", "/ready"])
    assert.deepEqual(await ask(path, "203.0.113.7"), { body: "b" }, path);
  assert.equal(refused, 3);
});

test("answerByPath: what is not health is asked about, after the address", async () => {
  const asked: string[] = [];
  const authorize = async ({ path, authorization }: EndpointRequest) => {
    asked.push(path);
    return authorization[0] === "good" ? undefined : { status: 401, body: "no" };
  };
  const clients = new MetricsClients([Cidr.parse("10.0.0.0/8")], { onRefused: () => undefined });
  const routes = {
    "/metrics": () => ({ body: "m" }),
    "/debug/": () => ({ body: "d" }),
    "/healthz": () => ({ body: "h" }),
  };
  const status = async (path: string, from: string, authorization: readonly string[]): Promise<number> =>
    (await answerByPath(routes, { ...REQUEST, path, from, to: "192.0.2.1", authorization }, { clients, authorize }))
      .status ?? 200;
  for (const path of ["/metrics", "/debug/x"]) {
    assert.equal(await status(path, "10.0.0.1", ["good"]), 200);
    assert.equal(await status(path, "10.0.0.1", []), 401);
    assert.equal(await status(path, "11.0.0.1", ["good"]), 403);
  }
  for (const from of ["10.0.0.1", "11.0.0.1"]) assert.equal(await status("/healthz", from, []), 200);
  assert.equal(await status("/other", "10.0.0.1", []), 404);
  assert.deepEqual(asked, ["/metrics", "/metrics", "/debug/x", "/debug/x"]);
});

test("isForeignName: any Host that is no address and not localhost, on loopback addresses alone", () => {
  assert.equal(isForeignName({ host: "node1", to: "127.0.0.1" }), true);
  assert.equal(isForeignName({ host: "node1", to: "fe80::1%eth0" }), false);
});

test("hostNameOf: the name without its port, else the address that was connected to", () => {
  assert.equal(hostNameOf({ host: "node1:80", to: "192.0.2.1" }), "node1");
  assert.equal(hostNameOf({ host: "[fd00::1]:80", to: "192.0.2.1" }), "[fd00::1]");
  for (const host of ["", "a\r\nb", "a/b", "[", "a:b"])
    assert.equal(hostNameOf({ host, to: "fd00::2" }), "[fd00::2]", host);
});
