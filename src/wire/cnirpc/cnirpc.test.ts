import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { character } from "#test/characters";
import {
  CniRpcError,
  decodeAddResponse,
  decodeCniArgs,
  decodeCniError,
  decodeGcArgs,
  EMPTY_CNI_ARGS,
  encodeAddResponse,
  encodeCniArgs,
  encodeCniError,
  encodeGcArgs,
} from "./index.ts";

const text = fc.string({ unit: character });
const args = fc.record(
  {
    containerId: text,
    netns: text,
    ifname: text,
    args: fc.dictionary(text, text, { noNullPrototype: true }),
    path: text,
    stdinData: fc.uint8Array(),
    ips: fc.array(text),
    interfaces: fc.dictionary(text, fc.boolean(), { noNullPrototype: true }),
  },
  { noNullPrototype: true },
);

test("encodeCniArgs: the bytes of the message that cni.proto describes", () => {
  const bytes = encodeCniArgs({
    containerId: "c",
    netns: "n",
    ifname: "e",
    args: { K: "v" },
    path: "p",
    stdinData: Uint8Array.of(123),
    ips: ["1"],
    interfaces: { a: true, b: false },
  });
  const fields = [
    "0a0163",
    "12016e",
    "1a0165",
    "22060a014b120176",
    "2a0170",
    "32017b",
    "3a0131",
    "42050a01611001",
    "42030a0162",
  ];
  assert.equal(Buffer.from(bytes).toString("hex"), fields.join(""));
  assert.equal(encodeCniArgs(EMPTY_CNI_ARGS).length, 0);
});

test("encodeCniArgs: round trips", () => {
  fc.assert(
    fc.property(args, (one) => {
      const read = decodeCniArgs(encodeCniArgs(one));
      assert.deepEqual({ ...read, stdinData: Uint8Array.from(read.stdinData) }, one);
    }),
  );
});

test("decodeCniArgs: unknown fields are skipped, map entries may lack key or value", () => {
  const bytes = Buffer.from("0a0163" + "7a0131" + "2200" + "4200" + "8001ff01", "hex");
  assert.deepEqual(decodeCniArgs(bytes), {
    ...EMPTY_CNI_ARGS,
    containerId: "c",
    args: { "": "" },
    interfaces: { "": false },
  });
});

test("GCArgs: the bytes of its message, and a round trip", () => {
  const bytes = encodeGcArgs({ network: "n", attachments: [{ containerId: "c", ifname: "e" }] });
  assert.equal(Buffer.from(bytes).toString("hex"), "0a060a0163120165" + "12016e");
  const attachment = fc.record({ containerId: text, ifname: text }, { noNullPrototype: true });
  fc.assert(
    fc.property(text, fc.array(attachment), (network, attachments) => {
      assert.deepEqual(decodeGcArgs(encodeGcArgs({ network, attachments })), { network, attachments });
    }),
  );
});

test("CNIError and AddResponse: round trip", () => {
  assert.equal(Buffer.from(encodeCniError({ code: 11, msg: "m", details: "d" })).toString("hex"), "080b12016d1a0164");
  fc.assert(
    fc.property(fc.nat(), text, text, fc.uint8Array(), (code, msg, details, result) => {
      assert.deepEqual(decodeCniError(encodeCniError({ code, msg, details })), { code, msg, details });
      assert.deepEqual(Uint8Array.from(decodeAddResponse(encodeAddResponse(result))), result);
    }),
  );
});

test("every decoder: arbitrary and mutated bytes are a message or a CniRpcError", () => {
  const mutated = fc.tuple(args, fc.nat(), fc.nat(255)).map(([one, at, byte]) => {
    const bytes = Uint8Array.from(encodeCniArgs(one));
    if (bytes.length > 0) bytes[at % bytes.length] = byte;
    return bytes;
  });
  fc.assert(
    fc.property(fc.oneof(fc.uint8Array(), mutated), (bytes) => {
      for (const decode of [decodeCniArgs, decodeAddResponse, decodeCniError, decodeGcArgs]) {
        try {
          decode(bytes);
        } catch (error) {
          assert.ok(error instanceof CniRpcError, String(error));
        }
      }
    }),
    { numRuns: 2000 },
  );
});
