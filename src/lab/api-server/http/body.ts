import { parse, YAMLError } from "yaml";
import { ApiError, badRequest } from "../errors.ts";
import { isObject, type Json, type JsonObject } from "../object/json.ts";
import { decodeProtobuf, PROTOBUF_TYPE } from "./protobuf.ts";

/** The maximum nesting: recursion over deeper documents could exhaust the stack. */
export const MAX_DEPTH = 500;

/** Parses JSON. Throws ApiError `BadRequest`. */
export function parseJson(bytes: Buffer): Json {
  let value: Json;
  try {
    value = JSON.parse(bytes.toString("utf8")) as Json;
  } catch (error) {
    if (error instanceof SyntaxError)
      throw badRequest(`couldn't get version/kind; json parse error: ${error.message}`, error);
    throw error;
  }
  checkDepth(value, 0);
  return value;
}

/** Parses YAML (or JSON, which is YAML). Throws ApiError `BadRequest`. */
export function parseYaml(bytes: Buffer): Json {
  let value: Json;
  try {
    // YAML 1.1 words such as `yes` stay strings, as do dates, as in the real server's JSON conversion.
    value = (parse(bytes.toString("utf8"), { schema: "core", maxAliasCount: 100, logLevel: "error" }) ?? null) as Json;
  } catch (error) {
    if (error instanceof YAMLError || error instanceof ReferenceError || error instanceof RangeError) {
      throw badRequest(`error decoding YAML: ${error.message.split("\n")[0]}`, error);
    }
    throw error;
  }
  checkDepth(value, 0);
  return value;
}

function checkDepth(value: Json, depth: number): void {
  if (typeof value !== "object" || value === null) return;
  if (depth > MAX_DEPTH) throw badRequest(`the document nests deeper than ${MAX_DEPTH} levels`);
  for (const member of Array.isArray(value) ? value : Object.values(value))
    if (member !== undefined) checkDepth(member, depth + 1);
}

/** Parses an object's body by its content type. Throws ApiError: `UnsupportedMediaType`, `BadRequest`. */
export function parseObjectBody(bytes: Buffer, contentType: string | undefined): JsonObject {
  const type = mediaType(contentType);
  if (type === PROTOBUF_TYPE) return decodeProtobuf(bytes);
  if (type !== "application/json" && type !== "application/yaml" && type !== "") {
    throw new ApiError(
      "UnsupportedMediaType",
      `the body of the request was in an unknown format - accepted media types include: application/json, application/yaml (found ${type})`,
    );
  }
  const value = type === "application/yaml" ? parseYaml(bytes) : parseJson(bytes);
  if (!isObject(value)) throw badRequest("the body of the request must be an object");
  return value;
}

/** The type of a Content-Type header, without parameters. */
export function mediaType(contentType: string | undefined): string {
  return (contentType ?? "").split(";")[0]?.trim().toLowerCase() ?? "";
}
