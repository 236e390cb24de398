import assert from "node:assert/strict";
import { test } from "node:test";
import { SelectError } from "../select/index.ts";
import { AUTH, FrontBed, POD, TIMEOUT } from "../testing/front-bed.ts";
import { TestClient } from "../testing/proxy-fixtures.ts";

/** Status, reason, what else an answer must have, and whether it ends the connection. */
const ANSWERS: readonly (readonly [name: string, request: string, pod: boolean, answer: RegExp])[] = [
  [
    "healthz",
    "GET /healthz HTTP/1.1\r\n\r\n",
    false,
    /^HTTP\/1\.1 200 OK\r\nContent-Type: application\/json\r\nContent-Length: 3\r\n\r\n/,
  ],
  ["healthz in absolute form", "GET http://x/healthz?a HTTP/1.1\r\nHost: x\r\n\r\n", false, /^HTTP\/1\.1 200 /],
  ["healthz for a pod", "GET /healthz HTTP/1.1\r\n\r\n", true, /^HTTP\/1\.1 404 /],
  ["metrics for a pod", "GET /metrics HTTP/1.1\r\n\r\n", true, /^HTTP\/1\.1 404 /],
  ["HEAD", "HEAD /healthz HTTP/1.1\r\n\r\n", false, /^HTTP\/1\.1 405 .*Allow: CONNECT, GET\r\n/s],
  [
    "a plain request, for those who show the status line alone",
    "GET http://a.example/x HTTP/1.1\r\n\r\n",
    false,
    /^HTTP\/1\.1 405 Method Not Allowed \(plainHttp is off\)\r\n.*mgmtproxy: only CONNECT and GET \/healthz are supported\n$/s,
  ],
  ["metrics that are off", "GET /metrics HTTP/1.1\r\n\r\n", false, /^HTTP\/1\.1 405 /],
  [
    "plain HTTP that is off",
    "GET http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
    false,
    /^HTTP\/1\.1 405 .*X-Content-Type-Options: nosniff\r\n/s,
  ],
  ["a body", "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", false, /^HTTP\/1\.1 405 .*Connection: close\r\n/s],
  [
    "no port",
    "CONNECT a.example HTTP/1.1\r\n\r\n",
    false,
    /^HTTP\/1\.1 400 .*Connection: close\r\n.*X-Uplink-Reason: bad-target\r\n/s,
  ],
  ["an empty host", "CONNECT :443 HTTP/1.1\r\n\r\n", false, /^HTTP\/1\.1 400 .*bad-target/s],
  ["a body of a CONNECT", "CONNECT a:1 HTTP/1.1\r\nContent-Length: 5\r\n\r\n", false, /^HTTP\/1\.1 400 .*bad-target/s],
  [
    "chunks of a CONNECT",
    "CONNECT a:1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    false,
    /^HTTP\/1\.1 400 .*bad-target/s,
  ],
  ["two hosts", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", false, /^HTTP\/1\.1 400 .*Connection: close/s],
  ["a bare LF", "CONNECT a:1 HTTP/1.1\n\n", false, /^HTTP\/1\.1 400 .*Connection: close/s],
  ["a long line", `CONNECT ${"a".repeat(3000)}:1 HTTP/1.1\r\n\r\n`, false, /^HTTP\/1\.1 431 .*header-too-large/s],
  ["many fields", `CONNECT a:1 HTTP/1.1\r\n${"x: y\r\n".repeat(65)}\r\n`, false, /^HTTP\/1\.1 431 /],
  ["a long head", `CONNECT a:1 HTTP/1.1\r\n${`x: ${"y".repeat(1000)}\r\n`.repeat(17)}\r\n`, false, /^HTTP\/1\.1 431 /],
  ["HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false, /^HTTP\/1\.1 505 .*Connection: close/s],
  ["loopback", "CONNECT 127.0.0.1:80 HTTP/1.1\r\n\r\n", false, /^HTTP\/1\.1 403 .*X-Uplink-Reason: denied/s],
  [
    "no credential",
    "CONNECT a.example:443 HTTP/1.1\r\n\r\n",
    true,
    /^HTTP\/1\.1 407 .*Proxy-Authenticate: Basic realm="mgmtproxy"\r\n/s,
  ],
  ["a denied port with the credential", `CONNECT a.example:22 HTTP/1.1\r\n${AUTH}\r\n`, true, /^HTTP\/1\.1 403 /],
  ["metadata with the credential", `CONNECT 169.254.169.254:443 HTTP/1.1\r\n${AUTH}\r\n`, true, /^HTTP\/1\.1 403 /],
  ["an allowed destination", `CONNECT a.example:443 HTTP/1.1\r\n${AUTH}\r\n`, true, /^HTTP\/1\.1 200 OK\r\n\r\n$/],
  ["HTTP/1.0", "CONNECT a.example:443 HTTP/1.0\r\n\r\n", false, /^HTTP\/1\.1 200 OK\r\n\r\n$/],
];

test("HttpConnection: each request has its exact answer", TIMEOUT, async (t) => {
  const beds = { host: await FrontBed.open(t), pod: await FrontBed.open(t, {}, POD) };
  for (const [name, request, isPod, answer] of ANSWERS) {
    assert.match(await beds[isPod ? "pod" : "host"].ask(t, request), answer, name);
  }
  assert.equal(
    beds.host.counters.requests,
    ANSWERS.filter(([, request, isPod]) => !isPod && request.startsWith("CONNECT a.example")).length + 4,
  );
});

test("HttpConnection: a pod gets 503 while no token is loaded, before its request is examined", TIMEOUT, async (t) => {
  const bed = await FrontBed.open(t, {}, POD);
  bed.tokens = undefined;
  assert.match(
    await bed.ask(t, `CONNECT a.example:443 HTTP/1.1\r\n${AUTH}\r\n`),
    /^HTTP\/1\.1 503 .*Retry-After: 5\r\n/s,
  );
});

test("HttpConnection: failures have their reason, and a pod learns nothing of this host", TIMEOUT, async (t) => {
  const text = "all attempts to a.example:443 failed; eth0/192.0.2.10(cost=0): connection refused";
  for (const isPod of [false, true]) {
    const bed = await FrontBed.open(t, {}, isPod ? POD : {});
    for (const code of ["not-ready", "no-uplink", "cost-limit", "dial-failed", "timeout", "dns"] as const) {
      bed.dial = () => Promise.reject(new SelectError(code, text));
      const answer = await bed.ask(t, `CONNECT a.example:443 HTTP/1.1\r\n${AUTH}\r\n`, "\r\n\r\nmgmtproxy:");
      assert.match(answer, /^HTTP\/1\.1 502 Bad Gateway\r\n/);
      assert.ok(answer.includes(`X-Uplink-Reason: ${code}\r\n`));
      assert.equal(answer.includes("Retry-After: 5"), code === "not-ready");
      assert.equal(answer.includes("eth0"), !isPod);
    }
    assert.equal(bed.counters.dialFailures, 6);
    assert.equal(bed.counters.notReady, 1);
  }
});

test(
  "HttpConnection: a connection stays usable after an answer, also pipelined; not after something malformed",
  TIMEOUT,
  async (t) => {
    const bed = await FrontBed.open(t);
    bed.dial = () => Promise.reject(new SelectError("dns", "no such host"));
    const client = await TestClient.to(t, bed.port);
    client.write("GET /healthz HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\n\r\nCONNECT a.example:443 HTTP/1.1\r\n\r\n");
    await client.until(({ text }) => text.split("HTTP/1.1 ").length === 4);
    assert.deepEqual(client.text.match(/HTTP\/1\.1 \d+/g), ["HTTP/1.1 200", "HTTP/1.1 405", "HTTP/1.1 502"]);
    bed.dial = () => bed.connected(1, "eth0");
    client.write("BAD\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n");
    await client.until(({ isEnded }) => isEnded);
    assert.deepEqual(client.text.match(/HTTP\/1\.1 \d+/g), [
      "HTTP/1.1 200",
      "HTTP/1.1 405",
      "HTTP/1.1 502",
      "HTTP/1.1 400",
    ]);
  },
);

test(
  "HttpConnection: bytes of a client before a failed dial are never read as its next request",
  TIMEOUT,
  async (t) => {
    const bed = await FrontBed.open(t);
    bed.dial = () => Promise.reject(new SelectError("dns", "no such host"));
    const client = await TestClient.to(t, bed.port);
    client.write("CONNECT a.example:443 HTTP/1.1\r\n\r\nCONNECT b.example:443 HTTP/1.1\r\n\r\n");
    await client.until(({ isEnded }) => isEnded);
    assert.deepEqual(client.text.match(/HTTP\/1\.1 \d+/g), ["HTTP/1.1 502"]);
    assert.deepEqual(bed.dials, ["a.example:443"]);
  },
);

test(
  "HttpConnection: bytes behind a CONNECT that is refused at once are never read as a request either",
  TIMEOUT,
  async (t) => {
    const bed = await FrontBed.open(t, {}, { ...POD, allowedPorts: [443] });
    for (const [head, status] of [
      ["CONNECT a.example:443 HTTP/1.1\r\n\r\n", 407],
      [`CONNECT a.example:22 HTTP/1.1\r\n${AUTH}\r\n`, 403],
    ] as const) {
      const client = await TestClient.to(t, bed.port);
      client.write(`${head}CONNECT b.example:443 HTTP/1.1\r\n${AUTH}\r\n`);
      await client.until(({ isEnded }) => isEnded);
      assert.deepEqual(client.text.match(/HTTP\/1\.1 \d+/g), [`HTTP/1.1 ${status}`]);
    }
    assert.deepEqual(bed.dials, []);
  },
);

test(
  "HttpConnection: /readyz lists the parts: 200 when all are ready, 503 when not, 404 for pods",
  TIMEOUT,
  async (t) => {
    const bed = await FrontBed.open(t);
    assert.match(
      await bed.ask(t, "GET /readyz HTTP/1.1\r\n\r\n", "ok\n"),
      /^HTTP\/1\.1 200 .*Cache-Control: no-store/s,
    );
    bed.isReady = false;
    assert.match(
      await bed.ask(t, "GET /readyz HTTP/1.1\r\n\r\n", "not ready\n"),
      /^HTTP\/1\.1 503 .*\[-\]uplinks degraded/s,
    );
    const pods = await FrontBed.open(t, {}, POD);
    assert.match(await pods.ask(t, "GET /readyz HTTP/1.1\r\n\r\n"), /^HTTP\/1\.1 404 /);
  },
);

test(
  "HttpConnection: a wrong token is counted and told with the client; a request without one is not",
  TIMEOUT,
  async (t) => {
    const bed = await FrontBed.open(t, {}, POD);
    const ask = (fields: string): Promise<string> => bed.ask(t, `CONNECT a.example:443 HTTP/1.1\r\n${fields}\r\n`);
    assert.match(await ask(""), / 407 /);
    assert.match(await ask(AUTH), / 200 /);
    assert.deepEqual([bed.counters.wrongTokens, bed.wrongTokens], [0, []]);
    assert.match(await ask("Proxy-Authorization: Basic Y2RpOndyb25n\r\n"), / 407 /);
    assert.equal(bed.counters.wrongTokens, 1);
    assert.match(bed.wrongTokens.join(), /^127\.0\.0\.1:\d+$/);
  },
);
