import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { character } from "#test/characters";
import { SelectError } from "../select/index.ts";
import { AUTH, FrontBed, POD, TIMEOUT } from "../testing/front-bed.ts";
import { TestClient } from "../testing/proxy-fixtures.ts";

test(
  "HttpConnection: any bytes, cut anywhere: an answer or an end, no bug, nothing dialled that policy forbids (fuzz)",
  TIMEOUT,
  async (t) => {
    const bed = await FrontBed.open(t, { plainHttp: true }, POD, {
      // Plain requests of pods are not forwarded, and not looked at.
      plainHttp: { targetOf: () => assert.fail("asked"), forward: () => assert.fail("forwarded") },
    });
    bed.dial = () => Promise.reject(new SelectError("dns", "no such host"));
    const authority = fc.oneof(
      fc.constantFrom(
        "127.0.0.1:443",
        "[::1]:443",
        "169.254.169.254:443",
        "[::ffff:10.43.0.1]:443",
        "10.42.0.1:443",
        "0:443",
        "2130706433:443",
      ),
      fc.tuple(fc.ipV4(), fc.constantFrom(443, 80, 5000)).map(([address, port]) => `${address}:${port}`),
      fc.string({ maxLength: 12 }),
    );
    const head = fc
      .tuple(
        fc.constantFrom("CONNECT", "GET", "POST", "connect"),
        authority,
        fc.constantFrom("HTTP/1.1", "HTTP/1.0", "HTTP/2"),
        fc.constantFrom(AUTH, "", "Host: a\r\nHost: b\r\n", "x\r\n", "Content-Length: 3\r\n"),
      )
      .map(([method, target, version, fields]) => `${method} ${target} ${version}\r\n${fields}\r\n`);
    const input = fc.oneof(
      fc.array(head, { minLength: 1, maxLength: 3 }).map((heads) => heads.join("")),
      fc.string({ unit: character, maxLength: 60 }),
      fc
        .tuple(head, fc.nat(60), fc.string({ unit: character, maxLength: 3 }))
        .map(([text, at, odd]) => text.slice(0, at) + odd + text.slice(at)),
    );
    await fc.assert(
      fc.asyncProperty(input, fc.nat(40), async (text, cut) => {
        bed.dials.length = 0;
        const client = await TestClient.to(t, bed.port);
        client.write(text.slice(0, cut));
        await new Promise((resolve) => setImmediate(resolve));
        client.write(text.slice(cut));
        client.socket.end();
        await client.until(({ isEnded, isClosed }) => isEnded || isClosed);
        client.socket.destroy();
        for (const status of client.text.matchAll(/^HTTP\/1\.1 (\d+)/gm)) {
          assert.match(status[1] ?? "", /^(400|403|404|405|407|408|431|502|503|505)$/);
        }
        for (const dialled of bed.dials) {
          assert.doesNotMatch(dialled, /^(127\.|169\.254\.|10\.4[23]\.|0\.|22[4-9]\.|2[345]\d\.|\[::1\])/);
          assert.match(dialled, /:(443|5000|8443)$/);
        }
        assert.deepEqual(bed.bugs, []);
      }),
      { numRuns: 400 },
    );
    assert.equal(bed.limiter.tunnels, 0);
  },
);
