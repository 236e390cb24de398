import assert from "node:assert/strict";
import { test } from "node:test";
import { FrontBed, TIMEOUT } from "../testing/front-bed.ts";
import { serverFor, TestClient } from "../testing/proxy-fixtures.ts";

test(
  "HttpConnection: plain requests are forwarded where that is allowed, without what is between the client and us",
  TIMEOUT,
  async (t) => {
    const origin = await serverFor(t, (socket) => {
      let text = "";
      socket.on("data", (chunk: Buffer) => {
        text += chunk.toString();
        if (text.endsWith("body")) socket.end(`HTTP/1.1 200 OK\r\nContent-Length: ${text.length}\r\n\r\n${text}`);
      });
    });
    const bed = await FrontBed.open(t, { plainHttp: true });
    bed.dial = () => bed.connected(origin.port, "eth0");
    const client = await TestClient.to(t, bed.port);
    client.write(
      "POST http://A.Example/path?q HTTP/1.1\r\nHost: other\r\nConnection: X-Own, keep-alive\r\nX-Own: 1\r\n" +
        "Proxy-Authorization: secret\r\nKeep-Alive: 5\r\nContent-Length: 4\r\nX-Kept: yes\r\n\r\nbody",
    );
    await client.until(({ isEnded }) => isEnded);
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
