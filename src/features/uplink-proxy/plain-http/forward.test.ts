import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { SelectError } from "../select/index.ts";
import { FrontBed, TIMEOUT } from "../testing/front-bed.ts";
import { serverFor, TestClient } from "../testing/proxy-fixtures.ts";
import { plainHttp } from "./index.ts";
import { type AnswerMode, TestOrigin } from "./testing/test-origin.ts";

test(
  "HttpConnection: plain requests are forwarded where that is allowed, without hop-by-hop fields",
  TIMEOUT,
  async (t) => {
    const origin = await serverFor(t, (socket) => {
      let text = "";
      socket.on("data", (chunk: Buffer) => {
        text += chunk.toString();
        if (text.endsWith("body")) socket.end(`HTTP/1.1 200 OK\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
      });
    });
    const bed = await FrontBed.open(t, { plainHttp: true }, {}, { plainHttp });
    bed.dial = () => bed.connected(origin.port, "eth0");
    const client = await TestClient.to(t, bed.port);
    client.write(
      "POST http://A.Example/path?q HTTP/1.1\r\nHost: other\r\nConnection: X-Own, keep-alive\r\nX-Own: 1\r\n" +
        "Proxy-Authorization: secret\r\nKeep-Alive: 5\r\nContent-Length: 4\r\nX-Kept: yes\r\n\r\nbody",
    );
    await client.read("\r\n\r\nbody");
    const [, received] = client.text.split(/(?<=\r\n\r\n)(?=POST)/);
    assert.equal(
      received,
      "POST /path?q HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\nX-Kept: yes\r\nConnection: close\r\n\r\nbody",
    );
    assert.deepEqual(bed.dials, ["a.example:80"]);
    for (const target of ["http://127.0.0.1/", "http://[::1]:80/", "http://[::ffff:127.0.0.1]/x"]) {
      const answer = await bed.ask(t, `GET ${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
      assert.match(answer, /^HTTP\/1\.1 403 /, target);
    }
    for (const target of ["http://u@a.example/", "http://a b/", "http://2130706433/", "https://a.example/"]) {
      assert.match(await bed.ask(t, `GET ${target} HTTP/1.1\r\nHost: x\r\n\r\n`), /^HTTP\/1\.1 40[05] /, target);
    }
  },
);

const MODES = ["length", "chunked", "close", "empty", "not-modified", "interim", "talkative", "early"] as const;
/** Those that cannot be passed on. */
const BROKEN = ["cut", "both-lengths", "folded"] as const;

interface Asked {
  readonly id: number;
  readonly origin: string;
  readonly method: "GET" | "POST" | "HEAD";
  readonly body: "none" | "length" | "chunked";
  readonly mode: AnswerMode;
}

function encodeAsked({ id, origin, method, body, mode }: Asked): string {
  const head = `${method} http://${origin}.example/${id}/${mode} HTTP/1.1\r\nHost: x\r\nAuthorization: secret-${id};\r\n`;
  const payload = `body-${id};`.repeat(4);
  if (body === "none") return `${head}\r\n`;
  if (body === "length") return `${head}Content-Length: ${payload.length}\r\n\r\n${payload}`;
  const chunk = `${payload.length.toString(16)}\r\n${payload}\r\n`;
  return `${head}Transfer-Encoding: chunked\r\n\r\n${chunk}${chunk}0\r\n\r\n`;
}

/** The answers that a client has read, by the framing that each of them tells. */
function readAnswers(text: string, asked: readonly Asked[]): { readonly status: number; readonly text: string }[] {
  const answers: { status: number; text: string }[] = [];
  let left = text;
  while (left !== "") {
    const [head = "", ...more] = left.split("\r\n\r\n");
    left = more.join("\r\n\r\n");
    const status = Number(head.slice(9, 12));
    if (status < 200) continue;
    const length = /\r\ncontent-length: (\d+)/i.exec(head)?.[1];
    const isBodiless = asked[answers.length]?.method === "HEAD" || status === 204 || status === 304;
    let taken = left.length;
    if (isBodiless) taken = 0;
    else if (/\r\ntransfer-encoding: chunked/i.test(head)) taken = left.indexOf("\r\n\r\n", left.indexOf("0\r\n")) + 4;
    else if (length !== undefined) taken = Number(length);
    answers.push({ status, text: `${head}|${left.slice(0, taken)}` });
    left = left.slice(taken);
  }
  return answers;
}

for (const isNative of [true, false]) {
  test(`HttpConnection, ${isNative ? "streams of our own" : "Node's sockets"}: any mix of plain requests over any cuts: an origin sees its own requests alone, one on each connection; a client reads the answers to its own, in order (property)`, {
    timeout: 60_000,
  }, async (t) => {
    const origins = await Promise.all(["a", "b", "c"].map((name) => TestOrigin.open(t, name)));
    const bed = await FrontBed.open(t, { plainHttp: true }, {}, { isNative, plainHttp });
    bed.dial = ({ destination }) => {
      const origin = origins.find(({ name }) => destination.text === `${name}.example:80`);
      return origin === undefined
        ? Promise.reject(new SelectError("dns", "no such host"))
        : bed.connected(origin.port, "eth0");
    };
    const request = fc.record({
      origin: fc.constantFrom("a", "b", "c", "a", "b", "unknown"),
      method: fc.constantFrom("GET", "POST", "HEAD"),
      body: fc.constantFrom("none", "length", "chunked"),
      mode: fc.oneof(
        { weight: 5, arbitrary: fc.constantFrom(...MODES) },
        { weight: 1, arbitrary: fc.constantFrom(...BROKEN) },
      ),
    });
    const script = fc.record({
      requests: fc.array(request, { minLength: 1, maxLength: 6 }),
      cuts: fc.array(fc.nat(2000), { maxLength: 12 }),
      endsSending: fc.boolean(),
    });
    let nextId = 1;
    await fc.assert(
      fc.asyncProperty(script, async ({ requests, cuts, endsSending }) => {
        for (const origin of origins) origin.received.length = 0;
        const asked: Asked[] = requests.map((one) => ({ ...one, id: nextId++ }) as Asked);
        const text = asked.map(encodeAsked).join("");
        const client = await TestClient.to(t, bed.port);
        let from = 0;
        for (const at of [...cuts.filter((cut) => cut < text.length).sort((a, b) => a - b), text.length]) {
          client.write(text.slice(from, at));
          from = at;
          for (let turns = at % 4; turns > 0; turns -= 1) await new Promise((resolve) => setImmediate(resolve));
        }
        if (endsSending) client.socket.end();
        await client.until(
          ({ isEnded, isClosed, text: read }) => isEnded || isClosed || readAnswers(read, asked).length >= asked.length,
        );
        const answers = readAnswers(client.text, asked);
        client.socket.destroy();
        for (const [at, answer] of answers.entries()) {
          const { id, origin } = asked[at] ?? assert.fail(`an answer too many: ${answer.text}`);
          const named = [...answer.text.matchAll(/\b[abc]-\d+;/g)].map(([name]) => name);
          if (answer.status < 400) assert.ok(named.length > 0, answer.text);
          assert.deepEqual([...new Set(named)], named.length > 0 ? [`${origin}-${id};`] : []);
          assert.doesNotMatch(answer.text, /stolen/);
        }
        // An answer that ends the connection is the last one.
        const unanswered = answers.length < asked.length;
        if (unanswered)
          assert.ok(client.error !== undefined || /connection: close/i.test(answers.at(-1)?.text ?? ""), client.text);
        for (const { name, received } of origins) {
          for (const bytes of received) {
            const id = Number(/^\w+ \/(\d+)\//.exec(bytes)?.[1] ?? assert.fail(`no request: ${bytes}`));
            const own = asked.find((one) => one.id === id);
            assert.equal(own?.origin, name, bytes);
            assert.equal(bytes.match(/^\w+ \/\d+\//gm)?.length, 1, bytes);
            const ids = [...bytes.matchAll(/(?:secret|body)-(\d+);/g)].map(([, found]) => Number(found));
            assert.deepEqual([...new Set(ids)], [id], bytes);
          }
        }
        assert.deepEqual(bed.bugs, []);
      }),
      { numRuns: 300 },
    );
    while (bed.limiter.tunnels > 0) await new Promise((resolve) => setImmediate(resolve));
  });
}

test(
  "HttpConnection: a protocol that was asked for has the connection from then on, one that was not is a fault",
  TIMEOUT,
  async (t) => {
    const seen: string[] = [];
    const origin = await serverFor(t, (socket) => {
      let text = "";
      socket.on("data", (chunk: Buffer) => {
        text += chunk.toString();
        seen.push(chunk.toString());
        if (text.endsWith("\r\n\r\n"))
          socket.write("HTTP/1.1 101 Go\r\nUpgrade: own\r\nConnection: Upgrade\r\n\r\nhello");
        if (text.endsWith("ping")) socket.end("pong");
      });
    });
    const bed = await FrontBed.open(t, { plainHttp: true }, {}, { plainHttp });
    bed.dial = () => bed.connected(origin.port, "eth0");
    const request = "GET http://a.example/ HTTP/1.1\r\nHost: x\r\n";
    const client = await TestClient.to(t, bed.port);
    client.write(`${request}Upgrade: own\r\nConnection: Upgrade\r\n\r\n`);
    assert.equal(await client.read("hello"), "HTTP/1.1 101 Go\r\nUpgrade: own\r\nConnection: Upgrade\r\n\r\nhello");
    client.write("ping");
    await client.until(({ isEnded }) => isEnded);
    assert.match(client.text, /pong$/);
    assert.deepEqual(seen.slice(1), ["ping"]);

    assert.match(await bed.ask(t, `${request}\r\n`), /^HTTP\/1\.1 502 .*X-Uplink-Reason: bad-answer/s);

    // What stands behind the request was not said in the new protocol: it is another request, and perhaps not for this origin.
    seen.length = 0;
    const eager = await TestClient.to(t, bed.port);
    eager.write(
      `${request}Upgrade: own\r\nConnection: Upgrade\r\n\r\nGET http://b.example/ HTTP/1.1\r\nAuthorization: secret\r\n\r\n`,
    );
    await eager.until(({ isClosed }) => isClosed);
    assert.doesNotMatch(seen.join(""), /secret/);
  },
);

test(
  "HttpConnection: a client of HTTP/1.0 gets no chunks and no interim answers, and its connection ends",
  TIMEOUT,
  async (t) => {
    const origin = await TestOrigin.open(t, "a");
    const bed = await FrontBed.open(t, { plainHttp: true }, {}, { plainHttp });
    bed.dial = () => bed.connected(origin.port, "eth0");
    for (const mode of ["chunked", "interim", "close"]) {
      const client = await TestClient.to(t, bed.port);
      client.write(`GET http://a.example/7/${mode} HTTP/1.0\r\n\r\n`);
      await client.until(({ isEnded }) => isEnded);
      assert.match(client.text, /^HTTP\/1\.1 200 OK\r\n[\s\S]*Connection: close\r\n\r\na-7;a-7;a-7;$/, mode);
      client.socket.destroy();
    }
  },
);

test(
  "HttpConnection: an answer that is cut off is reset at the client, so that it cannot be taken for whole",
  TIMEOUT,
  async (t) => {
    const origin = await TestOrigin.open(t, "a");
    const bed = await FrontBed.open(t, { plainHttp: true }, {}, { plainHttp });
    bed.dial = () => bed.connected(origin.port, "eth0");
    const client = await TestClient.to(t, bed.port);
    client.write("GET http://a.example/7/cut HTTP/1.1\r\nHost: x\r\n\r\n");
    await client.until(({ isClosed }) => isClosed);
    assert.equal(client.error?.code, "ECONNRESET");
  },
);

test(
  "HttpConnection: an origin that ends without an answer is a 502, and the client's connection goes on",
  TIMEOUT,
  async (t) => {
    const deaf = await serverFor(t, (socket) => socket.once("data", () => socket.end()));
    const origin = await TestOrigin.open(t, "b");
    const bed = await FrontBed.open(t, { plainHttp: true }, {}, { plainHttp });
    bed.dial = ({ destination }) => bed.connected(destination.host === "a.example" ? deaf.port : origin.port, "eth0");
    const client = await TestClient.to(t, bed.port);
    client.write(
      "GET http://a.example/1/x HTTP/1.1\r\nHost: x\r\n\r\nGET http://b.example/2/length HTTP/1.1\r\nHost: x\r\n\r\n",
    );
    await client.read("b-2;b-2;b-2;");
    assert.match(client.text, /^HTTP\/1\.1 502 [\s\S]*bad-answer[\s\S]*HTTP\/1\.1 200 OK/);
  },
);

test(
  "HttpConnection: /metrics is the proxy's own; that of another host is forwarded, or refused",
  TIMEOUT,
  async (t) => {
    const bed = await FrontBed.open(t, { plainHttp: true, metrics: true }, {}, { plainHttp });
    for (const target of ["/metrics", "/metrics?x=1"]) {
      const own = `GET ${target} HTTP/1.1\r\nHost: x\r\n\r\n`;
      assert.match(await bed.ask(t, own, "metrics 1\n"), /^HTTP\/1\.1 200 /, target);
    }
    const origin = await serverFor(t, (socket) => {
      socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nmetrics 2"));
    });
    bed.dial = () => bed.connected(origin.port, "eth0");
    const request = "GET http://a.example:9100/metrics HTTP/1.1\r\nHost: a.example:9100\r\n\r\n";
    assert.match(await bed.ask(t, request, "metrics 2"), /^HTTP\/1\.1 200 .*\r\n\r\nmetrics 2$/s);
    assert.deepEqual(bed.dials, ["a.example:9100"]);
    const without = await FrontBed.open(t, { metrics: true }, {}, { plainHttp });
    assert.match(await without.ask(t, request), /^HTTP\/1\.1 405 Method Not Allowed \(plainHttp is off\)/);
  },
);
