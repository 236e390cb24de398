// One thread serves everybody: what a parser of outside bytes costs is bounded by its input, also for the worst input of the largest size.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import { parseHandOver, readPodNics } from "#features/nic";
import { allowedSources } from "#features/source-guard";
import { parseExposition, parseReadiness } from "#features/suite-report";
import { validateEgress } from "#kube/coil";
import { NICS_ANNOTATION } from "#kube/nic";
import { boundedWork } from "#test/bounded-work";
import { parseCniArgs, parseCniCall, parseNetworkConfig } from "#wire/cni";
import { decodeCniArgs, decodeCniError, decodeGcArgs } from "#wire/cnirpc";
import { decodeGrpcMessage, decodeStatus, parseGrpcTimeout } from "#wire/grpc";
import { parseHostPort, RequestHeadReader } from "#wire/http-connect";
import { BodyReader, ResponseHeadReader } from "#wire/http1";
import { decodeHeaderBlock } from "#wire/http2";
import { decodePacket, parseIdentifiers } from "#wire/konnectivity";
import { ClientHelloReader, MAX_HELLO_BYTES } from "#wire/tls-hello";

/** The largest annotation, field of an object, or argument of a call: 256 KiB. */
const TEXT = 262_144;
/** The largest object of an API server. */
const OBJECT = 1_572_864;

/** Texts on which expressions of many kinds go back and try again, of the same length. */
function worstTexts(length: number): readonly string[] {
  const units = [
    "0",
    " ",
    "a-",
    ".",
    "::",
    "0:",
    "[",
    "]",
    "{",
    "=",
    ",",
    ";",
    '"',
    "\\",
    "\n",
    "\r",
    " \n",
    "%41",
    "x\t",
    "1.",
  ];
  return units.flatMap((unit) => {
    const body = unit.repeat(Math.floor(length / unit.length));
    return [`${body}\n`, `${body}!`, `"${body}`, `[${body}x`];
  });
}

/** The bytes, a byte for each call. */
function byteByByte(data: Uint8Array, push: (piece: Uint8Array) => { readonly kind: string }): string {
  for (let at = 0; at < data.length; at += 1) {
    const { kind } = push(data.subarray(at, at + 1));
    if (kind !== "need-more" && kind !== "more") return kind;
  }
  return "need-more";
}

function decodeWhole(message: Uint8Array): unknown {
  return decodePacket([message], message.length);
}

/** Ignores the error of a parser, which is tested elsewhere. */
function tried(parse: (text: string) => unknown): (text: string) => void {
  return (text) => {
    try {
      parse(text);
    } catch (error) {
      if ((error as { readonly code?: unknown }).code === "ERR_SCRIPT_EXECUTION_TIMEOUT") throw error;
    }
  };
}

const OF_TEXTS: Readonly<Record<string, readonly [parse: (text: string) => unknown, largest: number]>> = {
  "an annotation of NICs": [(text) => readPodNics({ metadata: { annotations: { [NICS_ANNOTATION]: text } } }), TEXT],
  "annotations of sources": [(text) => allowedSources(text, text), TEXT],
  "NICs of CNI_ARGS": [(text) => parseHandOver(`VPC=a;NICs=${text}`), TEXT],
  CNI_ARGS: [(text) => parseCniArgs(text), TEXT],
  "a CNI call": [
    (text) => parseCniCall({ CNI_COMMAND: "ADD", CNI_CONTAINERID: text, CNI_NETNS: text, CNI_IFNAME: text }),
    TEXT,
  ],
  "a CNI configuration": [(text) => parseNetworkConfig(text), TEXT],
  "an address": [(text) => IpAddress.tryParse(text), TEXT],
  "a CIDR": [(text) => Cidr.tryParse(text), TEXT],
  "HOST:PORT": [(text) => parseHostPort(text), 65_536],
  "status details of gRPC": [(text) => decodeStatus(text), 65_536],
  "a message of gRPC": [(text) => decodeGrpcMessage(text), 65_536],
  "a timeout of gRPC": [(text) => parseGrpcTimeout(text), 65_536],
  "identifiers of an agent": [(text) => parseIdentifiers(text, { unknownKeys: "ignore" }), 65_536],
  "an answer of /readyz": [(text) => parseReadiness(`[+]${text}`), TEXT],
  "an answer of /metrics": [(text) => parseExposition(`a{b="${text}`, new Set(["a"])), TEXT],
  "a template of an Egress": [
    (text) =>
      validateEgress({
        metadata: { name: text },
        spec: {
          destinations: [text],
          template: {
            metadata: { labels: { [text]: text }, annotations: { [text]: text } },
            spec: { containers: [{ name: "egress", resources: { requests: { cpu: text } } }] },
          },
        },
      }),
    OBJECT / 8,
  ],
};

for (const [name, [parse, largest]] of Object.entries(OF_TEXTS))
  test(`worst inputs: ${name} of the largest size is read in one pass`, () => {
    const attempt = tried(parse);
    boundedWork(() => {
      for (const text of worstTexts(largest)) attempt(text);
    });
  });

test("worst inputs: heads and bodies of HTTP and a ClientHello that come byte by byte cost their bytes, and are refused at their bound", () => {
  const head = Buffer.from(`GET / HTTP/1.1\r\nX: ${" ".repeat(65_536)}`, "latin1");
  const fields = Buffer.from(`GET / HTTP/1.1\r\n${"a: b\r\n".repeat(300)}\r\n`, "latin1");
  const answer = Buffer.from(`HTTP/1.1 200 OK\r\nX: ${"\t".repeat(65_536)}`, "latin1");
  const sizeLine = Buffer.from(`5;${" ".repeat(5000)}`, "latin1");
  const trailer = Buffer.from(`0\r\nX: ${" ".repeat(20_000)}`, "latin1");
  const hello = Buffer.alloc(MAX_HELLO_BYTES + 1, 0);
  for (let at = 0; at + 6 <= hello.length; at += 6) hello.set([22, 3, 1, 0, 1, at === 0 ? 1 : 0xff], at);
  const results = boundedWork(() => {
    const [request, requestOfFields, response] = [
      new RequestHeadReader(),
      new RequestHeadReader(),
      new ResponseHeadReader(),
    ];
    const [chunked, trailers, tls] = [
      new BodyReader({ kind: "chunked" }),
      new BodyReader({ kind: "chunked" }),
      new ClientHelloReader(),
    ];
    return [
      byteByByte(head, (piece) => request.push(piece)),
      byteByByte(fields, (piece) => requestOfFields.push(piece)),
      byteByByte(answer, (piece) => response.push(piece)),
      byteByByte(sizeLine, (piece) => chunked.push(piece)),
      byteByByte(trailer, (piece) => trailers.push(piece)),
      byteByByte(hello, (piece) => tls.push(piece)),
    ];
  });
  assert.deepEqual(results.slice(0, 5), ["refused", "refused", "malformed", "malformed", "malformed"]);
  assert.match(results[5] ?? "", /^(too-large|not-tls)$/);
});

test("worst inputs: a block of HPACK of the largest size costs its bytes", () => {
  for (const byte of [0x80, 0xbf, 0x40, 0x00, 0x3f, 0xff])
    boundedWork(() => {
      tried(() => decodeHeaderBlock(Buffer.alloc(65_536, byte)))("");
    });
});

test("worst inputs: an annotation of NICs that is read as YAML, as long as that is allowed, costs its characters", () => {
  for (const unit of ["]", ",", '"', "a: ", "- ", "{a: ", "&a "])
    boundedWork(() => {
      const text = `[${unit.repeat(Math.floor(16_000 / unit.length))}x`;
      tried((one) => readPodNics({ metadata: { annotations: { [NICS_ANNOTATION]: one } } }))(text);
    });
});

test("worst inputs: messages of Protocol Buffers of the largest size, of the smallest fields there are, cost their bytes", () => {
  const patterns = [
    [0x0a, 0x00],
    [0x22, 0x02, 0x0a, 0x00],
    [0x80, 0x80],
  ];
  for (const pattern of patterns) {
    const message = Buffer.alloc(1_048_576, Uint8Array.from(pattern));
    for (const decode of [decodeCniArgs, decodeGcArgs, decodeCniError, decodeWhole])
      boundedWork(() => tried(() => decode(message))(""));
  }
});
