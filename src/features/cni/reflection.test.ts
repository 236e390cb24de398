import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { Client, credentials, type ServiceError } from "@grpc/grpc-js";
import fc from "fast-check";
import { Deferred } from "#base/async";
import { systemClock } from "#base/clock";
import { encodeAddResponse, encodeCniArgs, encodeCniError } from "#wire/cnirpc";
import { GrpcWireError } from "#wire/grpc";
import { ProtoWriter } from "#wire/protobuf";
import { MAX_CONVERSATION_MESSAGE_BYTES } from "./grpc-conversation.ts";
import { type GrpcHandler, reflectionConversations, serveGrpc } from "./index.ts";
import { reflect } from "./reflection.ts";

/** grpc/reflection/v1/reflection.proto, by hand; v1alpha has the same messages. */
const PROTO = `
syntax = "proto3";
package grpc.reflection.PACKAGE;
message ServerReflectionRequest {
  string host = 1;
  oneof message_request {
    string file_by_filename = 3;
    string file_containing_symbol = 4;
    ExtensionRequest file_containing_extension = 5;
    string all_extension_numbers_of_type = 6;
    string list_services = 7;
  }
}
message ExtensionRequest { string containing_type = 1; int32 extension_number = 2; }
message ServerReflectionResponse {
  string valid_host = 1;
  ServerReflectionRequest original_request = 2;
  oneof message_response {
    FileDescriptorResponse file_descriptor_response = 4;
    ExtensionNumberResponse all_extension_numbers_response = 5;
    ListServiceResponse list_services_response = 6;
    ErrorResponse error_response = 7;
  }
}
message FileDescriptorResponse { repeated bytes file_descriptor_proto = 1; }
message ExtensionNumberResponse { string base_type_name = 1; repeated int32 extension_number = 2; }
message ListServiceResponse { repeated ServiceResponse service = 1; }
message ServiceResponse { string name = 1; }
message ErrorResponse { int32 error_code = 1; string error_message = 2; }
service ServerReflection {
  rpc ServerReflectionInfo(stream ServerReflectionRequest) returns (stream ServerReflectionResponse);
}`;

interface Answer {
  readonly valid_host: string;
  readonly original_request: object;
  readonly message_response: string;
  readonly file_descriptor_response?: { readonly file_descriptor_proto: readonly Buffer[] };
  readonly all_extension_numbers_response?: object;
  readonly list_services_response?: { readonly service: readonly { readonly name: string }[] };
  readonly error_response?: { readonly error_code: number; readonly error_message: string };
}

/** A method as proto-loader has it. */
interface Method {
  readonly path: string;
  readonly requestStream: boolean;
  readonly responseStream: boolean;
  readonly requestType: { readonly type: { readonly name: string } };
  readonly responseType: { readonly type: { readonly name: string } };
  readonly requestSerialize: (value: object) => Buffer;
  readonly requestDeserialize: (bytes: Buffer) => object;
  readonly responseSerialize: (value: object) => Buffer;
  readonly responseDeserialize: (bytes: Buffer) => Answer;
}

interface Loader {
  fromJSON(json: object, options: object): Readonly<Record<string, Readonly<Record<string, Method>>>>;
  loadFileDescriptorSetFromBuffer(
    bytes: Uint8Array,
    options: object,
  ): Readonly<Record<string, Readonly<Record<string, Method>>>>;
}

/** The used part of protobuf.js and of its extension for descriptors. */
interface ProtobufJs {
  parse(text: string, options: object): { readonly root: { toJSON(): object } };
  readonly Root: { fromDescriptor(set: object): { lookupType(name: string): MessageType } };
}
interface MessageType {
  decode(bytes: Uint8Array): object;
  toObject(message: object, options: object): object;
}
interface Descriptors {
  readonly FileDescriptorSet: MessageType;
}

// Another implementation of protobuf and of descriptors: the one that grpc-js brings.
const ofGrpc = createRequire(import.meta.resolve("@grpc/grpc-js"));
const loader = ofGrpc("@grpc/proto-loader") as Loader;
const ofLoader = createRequire(ofGrpc.resolve("@grpc/proto-loader"));
const { parse, Root } = ofLoader("protobufjs") as ProtobufJs;
const { FileDescriptorSet } = ofLoader("protobufjs/ext/descriptor") as Descriptors;

const LOAD = { keepCase: true, oneofs: true, defaults: true, enums: String, bytes: Buffer };

function reflectionMethod(version: string): Method {
  const { root } = parse(PROTO.replace("PACKAGE", version), { keepCase: true });
  const method = loader.fromJSON(root.toJSON(), LOAD)[`grpc.reflection.${version}.ServerReflection`]?.[
    "ServerReflectionInfo"
  ];
  assert.ok(method !== undefined);
  return method;
}

/** A server with reflection, or other conversations, and a grpc-js client, ended by the test. */
async function open(t: TestContext, conversations: Readonly<Record<string, GrpcHandler>> = reflectionConversations) {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-reflection-"));
  const socketPath = join(dir, "coild.sock");
  const bugs: unknown[] = [];
  const server = await serveGrpc({
    socketPath,
    handlers: {},
    conversations,
    onBug: (error) => bugs.push(error),
    clock: systemClock,
  });
  const client = new Client(`unix:${socketPath}`, credentials.createInsecure());
  t.after(async () => {
    client.close();
    await server[Symbol.asyncDispose]();
    rmSync(dir, { recursive: true });
    assert.deepEqual(bugs, []);
  });
  return { client, server };
}

/** Opens the stream, says all at once and waits for its end. */
function talk(client: Client, method: Method, requests: readonly object[]): Promise<Answer[]> {
  const call = client.makeBidiStreamRequest(method.path, method.requestSerialize, method.responseDeserialize);
  const answers: Answer[] = [];
  const { promise, resolve, reject } = Promise.withResolvers<Answer[]>();
  call.on("data", (answer: Answer) => answers.push(answer));
  call.on("error", reject);
  call.on("end", () => resolve(answers));
  for (const request of requests) call.write(request);
  call.end();
  return promise;
}

/** A FileDescriptorSet. */
function setOf(files: readonly Uint8Array[]): Uint8Array {
  const writer = new ProtoWriter();
  for (const file of files) writer.bytes(1, file);
  return writer.finish();
}

for (const version of ["v1", "v1alpha"]) {
  test(`reflection ${version}: lists the service, and its descriptor has the right methods and messages`, async (t) => {
    const { client } = await open(t);
    const method = reflectionMethod(version);
    const [services] = await talk(client, method, [{ host: "h", list_services: "" }]);
    assert.deepEqual(services?.list_services_response?.service, [{ name: "pkg.cnirpc.CNI" }]);
    assert.equal(services?.valid_host, "h");
    assert.deepEqual(services?.original_request, { host: "h", message_request: "list_services", list_services: "" });
    const [found] = await talk(client, method, [{ file_containing_symbol: "pkg.cnirpc.CNI" }]);
    const files = found?.file_descriptor_response?.file_descriptor_proto ?? [];
    const loaded = loader.loadFileDescriptorSetFromBuffer(setOf(files), LOAD);
    const cni: Readonly<Record<string, Method>> = loaded["pkg.cnirpc.CNI"] ?? {};
    assert.deepEqual(
      Object.values(cni).map(({ path, requestStream, responseStream, requestType, responseType }) => [
        path,
        requestStream,
        responseStream,
        requestType.type.name,
        responseType.type.name,
      ]),
      [
        ["/pkg.cnirpc.CNI/Add", false, false, "CNIArgs", "AddResponse"],
        ["/pkg.cnirpc.CNI/Del", false, false, "CNIArgs", "Empty"],
        ["/pkg.cnirpc.CNI/Check", false, false, "CNIArgs", "Empty"],
        ["/pkg.cnirpc.CNI/Status", false, false, "CNIArgs", "Empty"],
        ["/pkg.cnirpc.CNI/GC", false, false, "GCArgs", "Empty"],
      ],
    );
    const args = {
      containerId: "c1",
      netns: "/run/netns/x",
      ifname: "eth0",
      args: { K8S_POD_NAME: "p", IS_CHAINED: "false" },
      path: "/opt/cni/bin",
      stdinData: Buffer.from("{}"),
      ips: ["10.0.0.1", "fd00::1"],
      interfaces: { eth0: true, veth1: false },
    };
    const { containerId: container_id, stdinData: stdin_data, ...same } = args;
    // protobuf.js does not make maps of the entries in a descriptor.
    const entries = (map: object): object[] => Object.entries(map).map(([key, value]) => ({ key, value }));
    assert.deepEqual(cni["Add"]?.requestDeserialize(Buffer.from(encodeCniArgs(args))), {
      ...same,
      container_id,
      stdin_data,
      args: entries(args.args),
      interfaces: entries(args.interfaces),
    });
    const result = Buffer.from("{}");
    assert.deepEqual(cni["Add"]?.responseDeserialize(Buffer.from(encodeAddResponse(result))), { result });
  });
}

test("reflection: the error detail decodes by its descriptor, its code by name", async (t) => {
  const { client } = await open(t);
  const [found] = await talk(client, reflectionMethod("v1"), [{ file_containing_symbol: "pkg.cnirpc.CNIError" }]);
  const files = found?.file_descriptor_response?.file_descriptor_proto ?? [];
  const root = Root.fromDescriptor(FileDescriptorSet.decode(setOf(files)));
  const type = root.lookupType("pkg.cnirpc.CNIError");
  for (const [code, name] of [
    [0, "UNKNOWN"],
    [4, "INVALID_ENVIRONMENT_VARIABLES"],
    [11, "TRY_AGAIN_LATER"],
    [999, "INTERNAL"],
  ] as const) {
    const decoded = type.decode(encodeCniError({ code, msg: "m", details: "d" }));
    assert.deepEqual(type.toObject(decoded, { enums: String, defaults: true }), { code: name, msg: "m", details: "d" });
  }
});

test("reflection: maps are entries that are marked as such, and fields have their JSON names", async (t) => {
  const { client } = await open(t);
  const [found] = await talk(client, reflectionMethod("v1"), [{ file_by_filename: "pkg/cnirpc/cni.proto" }]);
  const files = found?.file_descriptor_response?.file_descriptor_proto ?? [];
  const set = FileDescriptorSet.toObject(FileDescriptorSet.decode(setOf(files)), {}) as {
    readonly file: readonly {
      readonly name: string;
      readonly syntax: string;
      readonly dependency: readonly string[];
      readonly messageType: readonly {
        readonly field: readonly { readonly name: string; readonly jsonName: string; readonly label: number }[];
        readonly nestedType: readonly { readonly name: string; readonly options: object }[];
      }[];
    }[];
  };
  const [cni, empty] = set.file;
  assert.deepEqual(
    [cni?.name, cni?.syntax, cni?.dependency, empty?.name],
    ["pkg/cnirpc/cni.proto", "proto3", ["google/protobuf/empty.proto"], "google/protobuf/empty.proto"],
  );
  const [args] = cni?.messageType ?? [];
  assert.deepEqual(
    args?.nestedType.map(({ name, options }) => [name, options]),
    [
      ["ArgsEntry", { mapEntry: true }],
      ["InterfacesEntry", { mapEntry: true }],
    ],
  );
  assert.deepEqual(
    args?.field.filter(({ label }) => label === 3).map(({ name }) => name),
    ["args", "ips", "interfaces"],
  );
  assert.deepEqual(
    args?.field.filter(({ name, jsonName }) => name !== jsonName).map(({ jsonName }) => jsonName),
    ["containerId", "stdinData"],
  );
});

test("reflection: files by name and symbol, on one stream, missing ones as NOT_FOUND", async (t) => {
  const { client } = await open(t);
  const cases: readonly (readonly [object, string])[] = [
    [{ file_by_filename: "pkg/cnirpc/cni.proto" }, "2 files"],
    [{ file_by_filename: "google/protobuf/empty.proto" }, "1 files"],
    [{ file_containing_symbol: "google.protobuf.Empty" }, "1 files"],
    [{ file_containing_symbol: "pkg.cnirpc.CNI.Check" }, "2 files"],
    [{ file_containing_symbol: "pkg.cnirpc.CNIArgs.stdin_data" }, "2 files"],
    [{ file_containing_symbol: "pkg.cnirpc.CNIArgs.InterfacesEntry" }, "2 files"],
    [{ file_containing_symbol: "pkg.cnirpc.TRY_AGAIN_LATER" }, "2 files"],
    [{ all_extension_numbers_of_type: "pkg.cnirpc.CNIArgs" }, "extensions []"],
    [{ file_by_filename: "nope.proto" }, "5 there is no file nope.proto"],
    [{ file_containing_symbol: "pkg.cnirpc" }, "5 there is no symbol pkg.cnirpc"],
    [{ file_containing_symbol: "" }, "5 there is no symbol "],
    [{ all_extension_numbers_of_type: "x.Y" }, "5 there is no type x.Y"],
    [{ file_containing_extension: { containing_type: "x.Y", extension_number: 1 } }, "5 there are no extensions"],
  ];
  const answers = await talk(
    client,
    reflectionMethod("v1"),
    cases.map(([request]) => request),
  );
  assert.deepEqual(
    answers.map((answer) => {
      if (answer.error_response !== undefined) {
        return `${answer.error_response.error_code} ${answer.error_response.error_message}`;
      }
      const files = answer.file_descriptor_response?.file_descriptor_proto.length;
      return files === undefined ? "extensions []" : `${files} files`;
    }),
    cases.map(([, expected]) => expected),
  );
});

test("reflection: a stream without requests ends with OK; an empty request is INVALID_ARGUMENT", async (t) => {
  const { client } = await open(t);
  const method = reflectionMethod("v1");
  assert.deepEqual(await talk(client, method, []), []);
  await assert.rejects(talk(client, method, [{ host: "h" }]), { code: 3 });
  await assert.rejects(talk(client, method, [{ list_services: "" }, { host: "h" }]), { code: 3 });
});

test("conversation: a message beyond the bound is RESOURCE_EXHAUSTED, and the server goes on", async (t) => {
  const { client } = await open(t);
  const method = reflectionMethod("v1");
  const text = (length: number): object => ({ file_by_filename: "x".repeat(length) });
  assert.equal((await talk(client, method, [text(MAX_CONVERSATION_MESSAGE_BYTES - 16)])).length, 1);
  await assert.rejects(talk(client, method, [text(MAX_CONVERSATION_MESSAGE_BYTES)]), { code: 8 });
  assert.equal((await talk(client, method, [{ list_services: "" }])).length, 1);
});

test("conversation: a caller that does not read is not answered without bound", async (t) => {
  let asked = 0;
  const { client } = await open(t, {
    "/x/Talk": async () => {
      asked += 1;
      return new Uint8Array(60_000);
    },
  });
  const same = (value: Buffer): Buffer => value;
  const call = client.makeBidiStreamRequest("/x/Talk", same, same);
  call.on("error", (error: ServiceError) => assert.equal(error.code, 1));
  const answers: Buffer[] = [];
  call.on("data", (answer: Buffer) => answers.push(answer)).pause();
  const COUNT = 500;
  for (let n = 0; n < COUNT; n += 1) call.write(Buffer.alloc(1));
  call.end();
  // Another caller's whole talk takes longer than the first would take to be answered if nothing held it back.
  for (let n = 0; n < 3; n += 1) await talk(client, { ...reflectionMethod("v1"), path: "/x/Talk", ...raw }, [{}, {}]);
  assert.ok(asked < COUNT / 2, `${asked} messages were answered to one that reads none`);
  const ended = new Deferred();
  call.on("end", () => ended.resolve());
  call.resume();
  await ended.promise;
  assert.equal(answers.length, COUNT);
});

/** Messages that are not looked into. */
const raw = { requestSerialize: () => Buffer.alloc(1), responseDeserialize: () => ({}) as Answer };

test("conversation: one that is open does not hold up the server's end", async (t) => {
  const { client, server } = await open(t);
  const method = reflectionMethod("v1");
  const call = client.makeBidiStreamRequest(method.path, method.requestSerialize, method.responseDeserialize);
  const failed = new Deferred<ServiceError>();
  const answered = new Deferred();
  call.on("error", (error: ServiceError) => failed.resolve(error));
  call.on("data", () => answered.resolve());
  call.write({ list_services: "" });
  await answered.promise;
  await server[Symbol.asyncDispose]();
  assert.equal((await failed.promise).code, 1, String(await failed.promise));
});

test("conversation: a caller that breaks off, before or within a message, is no bug", async (t) => {
  const { client } = await open(t);
  const method = reflectionMethod("v1");
  for (const wait of [true, false]) {
    const call = client.makeBidiStreamRequest(method.path, method.requestSerialize, method.responseDeserialize);
    const over = new Deferred();
    const answered = new Deferred();
    call.on("error", () => over.resolve());
    call.on("data", () => answered.resolve());
    call.write({ list_services: "" });
    if (wait) await answered.promise;
    call.cancel();
    await over.promise;
  }
  assert.equal((await talk(client, method, [{ list_services: "" }])).length, 1);
});

test("conversation: the caller's deadline ends it", async (t) => {
  const { client } = await open(t);
  const method = reflectionMethod("v1");
  const options = { deadline: Date.now() + 50 };
  const call = client.makeBidiStreamRequest(method.path, method.requestSerialize, method.responseDeserialize, options);
  const failed = new Deferred<ServiceError>();
  call.on("error", (error: ServiceError) => failed.resolve(error));
  call.resume();
  assert.equal((await failed.promise).code, 4);
});

test("reflect: whatever the bytes, only GrpcWireError escapes", () => {
  const field = fc.tuple(fc.integer({ min: 1, max: 9 }), fc.oneof(fc.string(), fc.constant("pkg.cnirpc.CNI")));
  const fields = fc.array(field).map((all) => {
    const writer = new ProtoWriter();
    for (const [number, text] of all) writer.message(number, Buffer.from(text));
    return writer.finish();
  });
  fc.assert(
    fc.property(fc.oneof(fc.uint8Array(), fields), (bytes) => {
      try {
        assert.ok(reflect(bytes).length > bytes.length);
      } catch (error) {
        if (!(error instanceof GrpcWireError)) throw error;
      }
    }),
  );
});
