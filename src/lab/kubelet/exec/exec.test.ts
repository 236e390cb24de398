import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  decodeClientMessage,
  EXEC_PROTOCOLS,
  ExecError,
  type ExecProtocol,
  encodeExit,
  encodeFailure,
  encodeOutput,
} from "./channels.ts";
import { parseExecRequest } from "./request.ts";

const [V5, V4] = EXEC_PROTOCOLS;

test("decodeClientMessage: channels of both versions, as client-go writes them", () => {
  for (const protocol of EXEC_PROTOCOLS) {
    assert.deepEqual(decodeClientMessage(protocol, Buffer.from("\0ls\n")), {
      kind: "stdin",
      bytes: Buffer.from("ls\n"),
    });
    assert.deepEqual(decodeClientMessage(protocol, Buffer.from('\x04{"Width":80,"Height":24}\n')), {
      kind: "resize",
      columns: 80,
      rows: 24,
    });
    for (const nothing of ["", "\0"])
      assert.deepEqual(decodeClientMessage(protocol, Buffer.from(nothing)), { kind: "nothing" });
    for (const bad of [
      "\x01x",
      "\x02x",
      "\x03{}",
      "\x05",
      "\x04",
      "\x04null",
      '\x04{"Width":-1,"Height":2}',
      '\x04{"Width":1e9,"Height":2}',
    ]) {
      assert.throws(
        () => decodeClientMessage(protocol, Buffer.from(bad)),
        { name: "ExecError", code: "bad-message" },
        JSON.stringify(bad),
      );
    }
  }
  assert.deepEqual(decodeClientMessage(V5, Buffer.of(255, 0)), { kind: "stdin-end" });
  for (const bad of [Buffer.of(255), Buffer.of(255, 1), Buffer.of(255, 0, 0)]) {
    assert.throws(() => decodeClientMessage(V5, bad), { code: "bad-message" });
  }
  assert.throws(() => decodeClientMessage(V4, Buffer.of(255, 0)), {
    message: /channel 255 may not be sent by clients of v4/,
  });
});

test("encodeOutput, encodeExit: golden bytes of output and exit codes", () => {
  assert.deepEqual(encodeOutput("stdout", Buffer.from("a")), Buffer.from("\x01a"));
  assert.deepEqual(encodeOutput("stderr", Buffer.from("b")), Buffer.from("\x02b"));
  const text = (message: Buffer): string => message.toString("utf8");
  assert.equal(text(encodeExit({ code: 0 })), '\x03{"metadata":{},"status":"Success"}');
  assert.equal(
    text(encodeExit({ code: 3 })),
    '\x03{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: exit status 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}',
  );
  assert.match(text(encodeExit({ code: undefined, signal: "SIGKILL" })), /signal: SIGKILL".*"message":"137"/);
  assert.match(text(encodeFailure("no such file")), /"message":"no such file","reason":"InternalError"/);
});

test("parseExecRequest: reads valid requests and refuses the others", () => {
  const path = "/exec/default/a/c";
  assert.deepEqual(
    parseExecRequest(`${path}?command=sh&command=-c&command=echo%20%24HOME&input=1&output=1&error=true`),
    {
      namespace: "default",
      pod: "a",
      container: "c",
      command: ["sh", "-c", "echo $HOME"],
      stdin: true,
      stdout: true,
      stderr: true,
      tty: false,
    },
  );
  const terminal = parseExecRequest(`${path}?command=sh&output=1&error=1&tty=1`);
  assert.deepEqual([terminal.tty, terminal.stderr, terminal.stdin], [true, false, false]);
  const cases = [
    ["/", "not-found"],
    ["/pods", "not-found"],
    ["/exec/default/a", "not-found"],
    ["/exec/default/a/c/d?command=ls&output=1", "not-found"],
    ["/exec/default/%zz/c?command=ls&output=1", "not-found"],
    [`${path}?output=1`, "bad-request"],
    [`${path}?command=ls`, "bad-request"],
    [`${path}?command=l%00s&output=1`, "bad-request"],
    [`${path}?output=1${"&command=x".repeat(1001)}`, "bad-request"],
  ] as const;
  for (const [target, code] of cases)
    assert.throws(() => parseExecRequest(target), { name: "ExecError", code }, target);
});

test("decodeClientMessage, parseExecRequest: for any bytes only ExecError is thrown (fuzz)", () => {
  const ours = (run: () => unknown): void => {
    try {
      run();
    } catch (error) {
      assert.ok(error instanceof ExecError, String(error));
    }
  };
  const resize = fc.json().map((text) => Buffer.from(`\x04${text}`));
  const message = fc.oneof(
    resize,
    fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
  );
  const protocol: fc.Arbitrary<ExecProtocol> = fc.constantFrom(...EXEC_PROTOCOLS);
  fc.assert(fc.property(protocol, message, (one, bytes) => ours(() => decodeClientMessage(one, bytes))));
  const target = fc.oneof(
    fc.string(),
    fc.webPath(),
    fc.string().map((text) => `/exec/${text}?command=${text}&output=1`),
  );
  fc.assert(fc.property(target, (text) => ours(() => parseExecRequest(text))));
});
