import assert from "node:assert/strict";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import fc from "fast-check";
import { formatBackendAnswer, SLOW_PATH } from "./answer.ts";
import { BackendError, parseBackendAnswer, serveBackend, WHO_PATH } from "./index.ts";

test("parseBackendAnswer: reads the answer of a backend, mapped addresses as IPv4, and refuses all else", () => {
  const { backend, client } = parseBackendAnswer(`${formatBackendAnswer("::ffff:10.1.0.3", "::ffff:172.31.0.1")}...`);
  assert.deepEqual([String(backend), String(client)], ["10.1.0.3", "172.31.0.1"]);
  assert.equal(String(parseBackendAnswer(formatBackendAnswer("fd00::1", "::1")).backend), "fd00::1");
  for (const body of ["", "10.1.0.3\n", "10.1.0.3 10.1.0.4 10.1.0.5\n", "who knows\n"])
    assert.throws(() => parseBackendAnswer(body), { name: "BackendError", code: "not-a-backend" });
  fc.assert(
    fc.property(fc.string(), (body) => {
      try {
        parseBackendAnswer(body);
      } catch (error) {
        assert.ok(error instanceof BackendError);
      }
    }),
  );
});

test("serveBackend: after the abort it still accepts for a while, completes all answers, then ends", async (t) => {
  const asked = new AbortController();
  const port = 20_000 + (process.pid % 10_000);
  const serving = serveBackend({ port, lingerMs: 300 }, asked);
  const ask = async (path: string): Promise<string> => {
    const socket = connect(port, "127.0.0.1");
    socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
    return text(socket);
  };
  const isUp = async (): Promise<void> => {
    for (;;) {
      try {
        await ask(WHO_PATH);
        return;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ECONNREFUSED" || t.signal.aborted) throw error;
      }
    }
  };
  await isUp();
  const slow = ask(`${SLOW_PATH}?ms=900`);
  const before = ask(WHO_PATH);
  await before;
  asked.abort();
  assert.match(await ask(WHO_PATH), /\r\n127\.0\.0\.1 127\.0\.0\.1\n/);
  assert.match(await slow, /127\.0\.0\.1 127\.0\.0\.1\n.*\r\n0\r\n\r\n$/s, "the last chunk came");
  await serving;
  await assert.rejects(ask(WHO_PATH), { code: "ECONNREFUSED" });
});
