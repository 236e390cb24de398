/**
 * OpenAPI 2 as the protobuf of gnostic (github.com/googleapis/gnostic OpenAPIv2/OpenAPIv2.proto), which kubectl up to 1.26 requests. Only
 * the members that our documents have; field numbers are those of the proto file.
 */
import { stringify } from "yaml";
import { asArray, asObject, asString, isObject, type Json, type JsonObject } from "../object/json.ts";

type Field = Buffer | undefined;

function varint(value: number): Buffer {
  const bytes: number[] = [];
  let rest = value;
  while (rest >= 0x80) {
    bytes.push((rest % 0x80) | 0x80);
    rest = Math.floor(rest / 0x80);
  }
  bytes.push(rest);
  return Buffer.from(bytes);
}

function bytesField(number: number, bytes: Buffer): Buffer {
  return Buffer.concat([varint(number * 8 + 2), varint(bytes.length), bytes]);
}

function text(number: number, value: Json | undefined): Field {
  return typeof value === "string" && value !== "" ? bytesField(number, Buffer.from(value)) : undefined;
}

function flag(number: number, value: Json | undefined): Field {
  return value === true ? Buffer.concat([varint(number * 8), Buffer.from([1])]) : undefined;
}

function int(number: number, value: Json | undefined): Field {
  return typeof value === "number" && value > 0
    ? Buffer.concat([varint(number * 8), varint(Math.trunc(value))])
    : undefined;
}

function double(number: number, value: Json | undefined): Field {
  if (typeof value !== "number") return undefined;
  const bytes = Buffer.alloc(8);
  bytes.writeDoubleLE(value);
  return Buffer.concat([varint(number * 8 + 1), bytes]);
}

function message(...fields: readonly (Field | readonly Field[])[]): Buffer {
  return Buffer.concat(fields.flat().filter((field) => field !== undefined));
}

function each(number: number, values: Json | undefined, encode: (value: Json) => Buffer): Buffer[] {
  return asArray(values).map((value) => bytesField(number, encode(value)));
}

function texts(number: number, values: Json | undefined): Buffer[] {
  return each(number, values, (value) => Buffer.from(asString(value)));
}

/** `NamedX`: name 1, value 2. */
function named(number: number, members: JsonObject, encode: (value: Json) => Buffer): Buffer[] {
  return Object.entries(members).flatMap(([name, value]) =>
    value === undefined ? [] : [bytesField(number, message(text(1, name), bytesField(2, encode(value))))],
  );
}

/** `Any`: yaml 2. */
function any(value: Json): Buffer {
  return message(text(2, stringify(value)));
}

function extensions(number: number, object: JsonObject): Buffer[] {
  return named(number, Object.fromEntries(Object.entries(object).filter(([key]) => key.startsWith("x-"))), any);
}

/** `Schema`. */
function schema(value: Json): Buffer {
  const from = asObject(value);
  const extra = from["additionalProperties"];
  const type = from["type"];
  const { items, properties } = from;
  return message(
    text(1, from["$ref"]),
    text(2, from["format"]),
    text(3, from["title"]),
    text(4, from["description"]),
    from["default"] === undefined ? undefined : bytesField(5, any(from["default"])),
    double(6, from["multipleOf"]),
    double(7, from["maximum"]),
    flag(8, from["exclusiveMaximum"]),
    double(9, from["minimum"]),
    flag(10, from["exclusiveMinimum"]),
    int(11, from["maxLength"]),
    int(12, from["minLength"]),
    text(13, from["pattern"]),
    int(14, from["maxItems"]),
    int(15, from["minItems"]),
    flag(16, from["uniqueItems"]),
    int(17, from["maxProperties"]),
    int(18, from["minProperties"]),
    texts(19, from["required"]),
    each(20, from["enum"], any),
    isObject(extra) ? bytesField(21, message(bytesField(1, schema(extra)))) : undefined,
    typeof extra === "boolean" ? bytesField(21, message(flag(2, extra))) : undefined,
    typeof type === "string" ? bytesField(22, message(text(1, type))) : undefined,
    isObject(items) ? bytesField(23, message(bytesField(1, schema(items)))) : undefined,
    each(24, from["allOf"], schema),
    isObject(properties) ? bytesField(25, message(named(1, properties, schema))) : undefined,
    extensions(31, from),
  );
}

/** `ParametersItem` with a body or a query parameter in it. */
function parameter(value: Json): Buffer {
  const from = asObject(value);
  if (from["in"] === "body") {
    const body = message(
      text(2, from["name"]),
      text(3, from["in"]),
      flag(4, from["required"]),
      bytesField(5, schema(from["schema"] ?? {})),
    );
    return message(bytesField(1, message(bytesField(1, body))));
  }
  const query = message(text(2, from["in"]), text(4, from["name"]), text(6, from["type"]));
  return message(bytesField(1, message(bytesField(2, message(bytesField(3, query))))));
}

/** `ResponseValue` with a `Response`, whose schema is a `SchemaItem`. */
function response(value: Json): Buffer {
  const from = asObject(value);
  const item = message(bytesField(1, schema(from["schema"] ?? {})));
  return message(bytesField(1, message(text(1, from["description"]), bytesField(2, item))));
}

function operation(value: Json): Buffer {
  const from = asObject(value);
  return message(
    text(5, from["operationId"]),
    texts(6, from["produces"]),
    texts(7, from["consumes"]),
    each(8, from["parameters"], parameter),
    bytesField(9, message(named(1, asObject(from["responses"]), response))),
    texts(10, from["schemes"]),
    extensions(13, from),
  );
}

const METHODS: readonly (readonly [string, number])[] = [
  ["get", 2],
  ["put", 3],
  ["post", 4],
  ["delete", 5],
  ["patch", 8],
];

function pathItem(value: Json): Buffer {
  const from = asObject(value);
  return message(
    METHODS.map(([method, number]) => {
      const found = from[method];
      return found === undefined ? undefined : bytesField(number, operation(found));
    }),
  );
}

/** Encodes an OpenAPI 2 document. */
export function encodeDocument(document: JsonObject): Buffer {
  const info = asObject(document["info"]);
  return message(
    text(1, document["swagger"]),
    bytesField(2, message(text(1, info["title"]), text(2, info["version"]))),
    bytesField(8, message(named(2, asObject(document["paths"]), pathItem))),
    bytesField(9, message(named(1, asObject(document["definitions"]), schema))),
  );
}
