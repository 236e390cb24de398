import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { character } from "#test/characters";
import {
  ANSWER,
  CALL,
  callBytes,
  encodeAnswer,
  encodeHead,
  HandoverError,
  handoverPath,
  isLauncher,
  launcherFor,
  MAX_BODY_BYTES,
  MAX_PATH_BYTES,
  MAX_TEXT_BYTES,
  NOT_MINE,
  parseCall,
} from "./index.ts";

const PATH = "/run/coild.sock.call1";

/** A call as a launcher sends it. */
function call(env: readonly string[], stdin: string): Buffer {
  const environment = Buffer.from(env.map((entry) => `${entry}\0`).join(""));
  const input = Buffer.from(stdin);
  const head = Buffer.from(encodeHead(PATH));
  head.writeUInt32LE(environment.length, CALL.environmentBytes);
  head.writeUInt32LE(input.length, CALL.inputBytes);
  return Buffer.concat([head, environment, input]);
}

test("parseCall: environment, standard input and the socket's path arrive as they were sent", () => {
  const entry = fc.tuple(fc.stringMatching(/^CNI_[A-Z]{0,8}$/), fc.string({ unit: character }));
  fc.assert(
    fc.property(fc.uniqueArray(entry, { selector: ([name]) => name }), fc.string({ unit: character }), (env, stdin) => {
      const clean = env.map(([name, value]) => [name, value.replaceAll("\0", "").toWellFormed()] as const);
      const bytes = call(
        clean.map(([name, value]) => `${name}=${value}`),
        stdin.toWellFormed(),
      );
      assert.equal(callBytes(bytes), bytes.length);
      const parsed = parseCall(bytes);
      assert.deepEqual({ ...parsed.env }, Object.fromEntries(clean));
      assert.deepEqual([parsed.stdin, parsed.path], [stdin.toWellFormed(), PATH]);
    }),
  );
});

test("parseCall: the first of two variables of one name counts, and no name reaches the prototype", () => {
  const { env } = parseCall(call(["CNI_A=1", "CNI_A=2", "__proto__=x", "=y", "none"], ""));
  assert.deepEqual({ ...env }, { CNI_A: "1", ["__proto__"]: "x" });
  assert.equal(Object.getPrototypeOf(env), null);
});

test("callBytes: says nothing before the head is there, and refuses strangers and giants", () => {
  const bytes = call(["CNI_A=1"], "{}");
  for (let length = 0; length < CALL.body; length += 1) assert.equal(callBytes(bytes.subarray(0, length)), undefined);
  assert.throws(() => callBytes(Buffer.from("PRI * HTTP/2.0")), { code: "malformed" });
  assert.throws(() => callBytes(Buffer.from("CNICALL2")), { code: "malformed" });
  bytes.writeUInt32LE(MAX_BODY_BYTES, CALL.inputBytes);
  assert.throws(() => callBytes(bytes), { code: "too-large" });
  bytes.writeUInt32LE(0xffffffff, CALL.environmentBytes);
  bytes.writeUInt32LE(0xffffffff, CALL.inputBytes);
  assert.throws(() => callBytes(bytes), { code: "too-large" });
});

test("parseCall: of any bytes only HandoverError escapes", () => {
  const spoiled = fc
    .tuple(fc.array(fc.tuple(fc.nat(200), fc.nat(255)), { maxLength: 6 }), fc.nat(220))
    .map(([changes, length]) => {
      const bytes = call(["CNI_COMMAND=ADD", "CNI_ARGS=A=B"], '{"name":"net"}');
      for (const [at, value] of changes) if (at < bytes.length) bytes[at] = value;
      return bytes.subarray(0, length);
    });
  fc.assert(
    fc.property(fc.oneof(spoiled, fc.uint8Array({ maxLength: 300 })), (bytes) => {
      for (const parse of [callBytes, parseCall]) {
        try {
          parse(bytes);
        } catch (error) {
          assert.ok(error instanceof HandoverError, String(error));
        }
      }
    }),
    { numRuns: 2000 },
  );
});

test("encodeAnswer: exit code, descriptor, size, text; bounded", () => {
  const bytes = Buffer.from(encodeAnswer({ exitCode: 1, to: "stderr", text: "é\n" }));
  assert.deepEqual([...bytes], [1, 2, 0, 0, 3, 0, 0, 0, 0xc3, 0xa9, 0x0a]);
  assert.deepEqual([...encodeAnswer(NOT_MINE)], [NOT_MINE, 1, 0, 0, 0, 0, 0, 0]);
  const text = "x".repeat(MAX_TEXT_BYTES + 1);
  assert.throws(() => encodeAnswer({ exitCode: 0, to: "stdout", text }), { code: "too-large" });
  assert.equal(encodeAnswer({ exitCode: 0, to: "stdout", text: text.slice(1) }).length, ANSWER.text + MAX_TEXT_BYTES);
});

test("launcherFor: only the path at the end of a launcher changes; other files and impossible paths are refused", () => {
  const file = Buffer.concat([Buffer.alloc(1000, 7), encodeHead(PATH)]);
  assert.ok(isLauncher(file));
  const other = Buffer.from(launcherFor(file, "/var/run/x"));
  assert.ok(isLauncher(other));
  assert.deepEqual(other, Buffer.concat([Buffer.alloc(1000, 7), encodeHead("/var/run/x")]));
  assert.deepEqual(launcherFor(other, PATH), file);
  for (const stranger of [Buffer.alloc(0), Buffer.alloc(2000), Buffer.from("echo one\n"), encodeHead(PATH)]) {
    assert.equal(isLauncher(stranger), false);
    assert.throws(() => launcherFor(stranger, PATH), { code: "malformed" });
  }
  for (const path of ["", "run", `/${"x".repeat(MAX_PATH_BYTES)}`, "/a\0b"]) {
    assert.throws(() => launcherFor(file, path), { code: "malformed" });
  }
});

test("handoverPath: beside the socket, with the version in its name; none where the name is too long", () => {
  assert.equal(handoverPath("/run/coild.sock"), PATH);
  assert.equal(handoverPath(`/${"x".repeat(MAX_PATH_BYTES - 7)}`)?.length, MAX_PATH_BYTES);
  assert.equal(handoverPath(`/${"x".repeat(MAX_PATH_BYTES - 6)}`), undefined);
});
