import { CNI_SERVICE } from "#wire/cnirpc";
import { ProtoWriter } from "#wire/protobuf";

/** A .proto file for server reflection: its FileDescriptorProto, and the names that it declares. */
export interface DescribedFile {
  readonly name: string;
  readonly bytes: Uint8Array;
  /** The files it imports, by name. */
  readonly dependencies: readonly string[];
  /** Full names of everything it declares. */
  readonly symbols: readonly string[];
}

/** Name, number and type of a field; a type is written as in a .proto file. */
type Field = readonly [name: string, number: number, type: string];

interface FileSource {
  readonly name: string;
  readonly package: string;
  readonly goPackage: string;
  readonly dependencies: readonly string[];
  readonly messages: Readonly<Record<string, readonly Field[]>>;
  readonly enums: Readonly<Record<string, Readonly<Record<string, number>>>>;
  /** The full names of the types of request and answer, by service and method. */
  readonly services: Readonly<Record<string, Readonly<Record<string, readonly [takes: string, returns: string]>>>>;
}

/** Field types of descriptor.proto, `FieldDescriptorProto.Type`. */
const SCALARS: Readonly<Record<string, number>> = { bool: 8, string: 9, bytes: 12 };
const TYPE_MESSAGE = 11;
const TYPE_ENUM = 14;
/** `FieldDescriptorProto.Label`. */
const LABEL = { optional: 1, repeated: 3 } as const;

const EMPTY_FILE: FileSource = {
  name: "google/protobuf/empty.proto",
  package: "google.protobuf",
  goPackage: "google.golang.org/protobuf/types/known/emptypb",
  dependencies: [],
  messages: { Empty: [] },
  enums: {},
  services: {},
};

/** Coil's `cni.proto` (docs/spec/pod-network.md#4.2). */
const CNI_FILE: FileSource = {
  name: "pkg/cnirpc/cni.proto",
  package: "pkg.cnirpc",
  goPackage: "github.com/cybozu-go/coil/v2/pkg/cnirpc",
  dependencies: [EMPTY_FILE.name],
  messages: {
    CNIArgs: [
      ["container_id", 1, "string"],
      ["netns", 2, "string"],
      ["ifname", 3, "string"],
      ["args", 4, "map<string,string>"],
      ["path", 5, "string"],
      ["stdin_data", 6, "bytes"],
      ["ips", 7, "repeated string"],
      ["interfaces", 8, "map<string,bool>"],
    ],
    CNIError: [
      ["code", 1, "ErrorCode"],
      ["msg", 2, "string"],
      ["details", 3, "string"],
    ],
    AddResponse: [["result", 1, "bytes"]],
    Attachment: [
      ["container_id", 1, "string"],
      ["ifname", 2, "string"],
    ],
    GCArgs: [
      ["attachments", 1, "repeated Attachment"],
      ["network", 2, "string"],
    ],
  },
  enums: {
    ErrorCode: {
      UNKNOWN: 0,
      INCOMPATIBLE_CNI_VERSION: 1,
      UNSUPPORTED_FIELD: 2,
      UNKNOWN_CONTAINER: 3,
      INVALID_ENVIRONMENT_VARIABLES: 4,
      IO_FAILURE: 5,
      DECODING_FAILURE: 6,
      INVALID_NETWORK_CONFIG: 7,
      TRY_AGAIN_LATER: 11,
      PLUGIN_NOT_AVAILABLE: 50,
      LIMITED_CONNECTIVITY: 51,
      INTERNAL: 999,
    },
  },
  services: {
    CNI: {
      Add: [".pkg.cnirpc.CNIArgs", ".pkg.cnirpc.AddResponse"],
      Del: [".pkg.cnirpc.CNIArgs", ".google.protobuf.Empty"],
      Check: [".pkg.cnirpc.CNIArgs", ".google.protobuf.Empty"],
      Status: [".pkg.cnirpc.CNIArgs", ".google.protobuf.Empty"],
      GC: [".pkg.cnirpc.GCArgs", ".google.protobuf.Empty"],
    },
  },
};

/** The files of the services that coild describes. */
export const DESCRIBED_FILES: readonly DescribedFile[] = [describe(CNI_FILE), describe(EMPTY_FILE)];
/** The services that coild describes. */
export const DESCRIBED_SERVICES: readonly string[] = [CNI_SERVICE];

/** A file as a FileDescriptorProto (google/protobuf/descriptor.proto). */
function describe(source: FileSource): DescribedFile {
  const writer = new ProtoWriter().string(1, source.name).string(2, source.package);
  for (const name of source.dependencies) writer.string(3, name);
  for (const [name, fields] of Object.entries(source.messages)) writer.message(4, message(source, name, fields));
  for (const [name, values] of Object.entries(source.enums)) {
    const body = new ProtoWriter().string(1, name);
    for (const [value, number] of Object.entries(values)) {
      body.message(2, new ProtoWriter().string(1, value).uint(2, number).finish());
    }
    writer.message(5, body.finish());
  }
  for (const [name, methods] of Object.entries(source.services)) {
    const body = new ProtoWriter().string(1, name);
    for (const [method, [takes, returns]] of Object.entries(methods)) {
      body.message(2, new ProtoWriter().string(1, method).string(2, takes).string(3, returns).finish());
    }
    writer.message(6, body.finish());
  }
  const bytes = writer
    .message(8, new ProtoWriter().string(11, source.goPackage).finish())
    .string(12, "proto3")
    .finish();
  return { name: source.name, bytes, dependencies: source.dependencies, symbols: symbolsOf(source) };
}

/** A DescriptorProto. A map is a repeated message of a nested type that is marked as an entry. */
function message(source: FileSource, name: string, fields: readonly Field[]): Uint8Array {
  const writer = new ProtoWriter().string(1, name);
  const entries: Uint8Array[] = [];
  for (const [field, number, type] of fields) {
    const [, key, value] = /^map<(\w+),(\w+)>$/.exec(type) ?? [];
    if (key === undefined || value === undefined) {
      writer.message(2, fieldOf(source, field, number, type));
      continue;
    }
    const entry = entryName(field);
    const typeName = `.${source.package}.${name}.${entry}`;
    writer.message(2, fieldBytes(field, number, LABEL.repeated, TYPE_MESSAGE, typeName));
    entries.push(
      new ProtoWriter()
        .string(1, entry)
        .message(2, fieldOf(source, "key", 1, key))
        .message(2, fieldOf(source, "value", 2, value))
        .message(7, new ProtoWriter().uint(7, 1).finish())
        .finish(),
    );
  }
  for (const entry of entries) writer.message(3, entry);
  return writer.finish();
}

function fieldOf(source: FileSource, name: string, number: number, type: string): Uint8Array {
  const [, repeated, element = type] = /^(repeated )?(\w+)$/.exec(type) ?? [];
  const label = repeated === undefined ? LABEL.optional : LABEL.repeated;
  const scalar = SCALARS[element];
  if (scalar !== undefined) return fieldBytes(name, number, label, scalar, "");
  return fieldBytes(name, number, label, TYPE_ENUM, `.${source.package}.${element}`);
}

/** A FieldDescriptorProto. */
function fieldBytes(name: string, number: number, label: number, type: number, typeName: string): Uint8Array {
  const jsonName = name.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase());
  return new ProtoWriter()
    .string(1, name)
    .uint(3, number)
    .uint(4, label)
    .uint(5, type)
    .string(6, typeName)
    .string(10, jsonName)
    .finish();
}

/** `stdin_data` to `StdinDataEntry`, as protoc names it. */
function entryName(field: string): string {
  return `${field.replaceAll(/(?:^|_)(.)/g, (_, letter: string) => letter.toUpperCase())}Entry`;
}

/** Values of an enum are siblings of it, as in C++. */
function symbolsOf(source: FileSource): string[] {
  const messages = Object.entries(source.messages).flatMap(([name, fields]) => [
    name,
    ...fields.map(([field]) => `${name}.${field}`),
    ...fields.filter(([, , type]) => type.startsWith("map<")).map(([field]) => `${name}.${entryName(field)}`),
  ]);
  const enums = Object.entries(source.enums).flatMap(([name, values]) => [name, ...Object.keys(values)]);
  const services = Object.entries(source.services).flatMap(([name, methods]) => [
    name,
    ...Object.keys(methods).map((method) => `${name}.${method}`),
  ]);
  return [...messages, ...enums, ...services].map((name) => `${source.package}.${name}`);
}
