import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { connectThrough, HttpProxyError, parseProxy, proxyFor } from "./index.ts";

const PROXY = "http://proxy.example:3128";

/** golang.org/x/net/http/httpproxy says this of these targets, with HTTPS_PROXY set. */
const DIRECT: readonly [hostname: string, port: number, noProxy: string, isDirect: boolean][] = [
  ["localhost", 443, "", true],
  ["127.0.0.9", 443, "", true],
  ["::1", 443, "", true],
  ["10.0.0.1", 6443, "", false],
  ["10.0.0.1", 6443, "10.0.0.0/8", true],
  ["fd00::1", 6443, "10.0.0.0/8,fd00::/8", true],
  ["10.0.0.1", 6443, "10.0.0.1", true],
  ["10.0.0.1", 6443, "10.0.0.1:6443", true],
  ["10.0.0.1", 6443, "10.0.0.1:443", false],
  ["fd00::1", 6443, "[fd00::1]:6443", true],
  ["fd00::1", 6443, "fd00::1", true],
  ["api.example.org", 443, "example.org", true],
  ["example.org", 443, "example.org", true],
  ["example.org", 443, ".example.org", false],
  ["a.example.org", 443, ".example.org", true],
  ["a.example.org", 443, "*.example.org", true],
  ["badexample.org", 443, "example.org", false],
  ["API.example.org.", 443, " foo, EXAMPLE.org ", true],
  ["api.example.org", 443, "example.org:8443", false],
  ["x.example.com", 443, "*", true],
  ["x.example.com", 443, ",, ,", false],
];

test("proxyFor: as Go chooses it", () => {
  for (const [hostname, port, noProxy, isDirect] of DIRECT) {
    const proxy = proxyFor({ protocol: "https:", hostname, port }, { HTTPS_PROXY: PROXY, NO_PROXY: noProxy });
    assert.equal(proxy === undefined, isDirect, `${hostname}:${port} with NO_PROXY="${noProxy}"`);
  }
  const target = { hostname: "x", port: 1 } as const;
  const https = { ...target, protocol: "https:" } as const;
  assert.equal(proxyFor(https, { HTTPS_PROXY: "", https_proxy: "p:1" })?.name, "http://p:1");
  assert.equal(proxyFor(https, { HTTP_PROXY: PROXY, ALL_PROXY: PROXY }), undefined);
  assert.equal(proxyFor({ ...target, protocol: "http:" }, { HTTP_PROXY: "https://p" })?.port, 443);
});

test("parseProxy: a password is sent and never named", () => {
  const proxy = parseProxy("http://me:pass%40word@[fd00::1]:3128", "HTTPS_PROXY");
  assert.deepEqual(proxy, {
    protocol: "http:",
    hostname: "fd00::1",
    port: 3128,
    authorization: `Basic ${Buffer.from("me:pass@word").toString("base64")}`,
    name: "http://[fd00::1]:3128",
  });
  for (const text of ["http://me:secret@:0", "socks5://me:secret@x", "http://me:secret@x:99999"])
    assert.throws(
      () => parseProxy(text, "HTTPS_PROXY"),
      (error) =>
        error instanceof HttpProxyError && /^HTTPS_PROXY /.test(error.message) && !error.message.includes("secret"),
    );
});

test("proxyFor: of any texts the only error is ours (fuzz)", () => {
  const piece = fc.oneof(fc.string(), fc.constantFrom("10.0.0.0/8", "[::1]:1", ".", "*", "a:b@c", "http://", "%", ":"));
  fc.assert(
    fc.property(piece, piece, fc.array(piece), (hostname, proxy, noProxy) => {
      try {
        proxyFor({ protocol: "https:", hostname, port: 1 }, { HTTPS_PROXY: proxy, NO_PROXY: noProxy.join() });
      } catch (error) {
        assert.ok(error instanceof HttpProxyError, String(error));
      }
    }),
  );
});

/** A proxy that answers each connection with these bytes. */
async function proxyThat(t: TestContext, answer: string) {
  const heads: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined).on("close", () => sockets.delete(socket));
    socket.once("data", (head) => {
      heads.push(head.toString());
      if (answer !== "") socket.write(answer);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  const proxy = parseProxy(`http://u:p@127.0.0.1:${(server.address() as AddressInfo).port}`, "test");
  return { proxy, heads, sockets };
}

const TARGET = { hostname: "fd00::1", port: 6443 };

test("connectThrough: asks for the target, and what the target sent first is read first", async (t) => {
  const { proxy, heads } = await proxyThat(t, "HTTP/1.1 200 OK\r\n\r\nhello");
  const socket = await connectThrough(proxy, TARGET, { signal: t.signal });
  assert.equal(String((await once(socket, "data"))[0]), "hello");
  socket.destroy();
  assert.match(heads[0] ?? "", /^CONNECT \[fd00::1\]:6443 HTTP\/1\.1\r\n(.*\r\n)*host: \[fd00::1\]:6443\r\n/i);
  assert.match(heads[0] ?? "", /\r\nproxy-authorization: Basic dTpw\r\n/i);
});

test("connectThrough: a refusal, an answer that is none, one without an end, and a silent proxy end it, and leave nothing open", async (t) => {
  const cases: readonly [string, "refused" | "unreachable", RegExp][] = [
    [
      "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
      "refused",
      /does not connect to \[fd00::1\]:6443: 403 Forbidden/,
    ],
    ["SSH-2.0-x\r\n", "unreachable", /did not answer: Parse Error/],
    [`HTTP/1.1 200 OK\r\nX: ${"x".repeat(20_000)}\r\n`, "unreachable", /Header overflow/],
  ];
  for (const [answer, code, text] of cases) {
    const { proxy, sockets } = await proxyThat(t, answer);
    await assert.rejects(connectThrough(proxy, TARGET, { signal: t.signal }), (error) => {
      assert.ok(error instanceof HttpProxyError && error.code === code && text.test(error.message), String(error));
      return true;
    });
    for (const socket of sockets) await once(socket, "close");
  }
  const { proxy, sockets } = await proxyThat(t, "");
  const stop = new AbortController();
  const waiting = connectThrough(proxy, TARGET, { signal: stop.signal });
  stop.abort(new Error("enough"));
  await assert.rejects(waiting, /enough/);
  for (const socket of sockets) await once(socket, "close");
});
