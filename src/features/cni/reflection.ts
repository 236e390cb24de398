import { GrpcCode, GrpcWireError } from "#wire/grpc";
import { fieldText, ProtoError, ProtoWriter, readFields } from "#wire/protobuf";
import { DESCRIBED_FILES, DESCRIBED_SERVICES, type DescribedFile } from "./descriptor.ts";
import type { GrpcHandler } from "./grpc-server.ts";

/** Both versions of the service have the same messages (grpc/grpc-proto, grpc/reflection). */
const VERSIONS = ["v1", "v1alpha"] as const;

/** Server reflection of `pkg.cnirpc.CNI` (docs/spec/pod-network.md#4.2): conversations by path, for `serveGrpc`. */
export const reflectionConversations: Readonly<Record<string, GrpcHandler>> = Object.fromEntries(
  VERSIONS.map((version) => [
    `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`,
    async (request: Uint8Array) => reflect(request),
  ]),
);

/** The number of the request's field that is set, and its text. */
interface Question {
  readonly host: string;
  readonly field: number;
  readonly text: string;
}

/** Fields of ServerReflectionRequest. */
const ASK = { fileByName: 3, fileOfSymbol: 4, fileOfExtension: 5, extensionsOfType: 6, services: 7 } as const;
/** Fields of ServerReflectionResponse. */
const SAY = { files: 4, extensions: 5, services: 6, error: 7 } as const;

/**
 * Answers a ServerReflectionRequest; if something is not found, the answer names it. Throws {@link GrpcWireError} `malformed` for a
 * malformed request, and for one without a field.
 */
export function reflect(request: Uint8Array): Uint8Array {
  const { host, field, text } = parseQuestion(request);
  const writer = new ProtoWriter().string(1, host).message(2, request);
  switch (field) {
    case ASK.fileByName:
      return files(writer, (file) => file.name === text, `there is no file ${text}`);
    case ASK.fileOfSymbol:
      return files(writer, (file) => file.symbols.includes(text), `there is no symbol ${text}`);
    case ASK.fileOfExtension:
      return notFound(writer, "there are no extensions");
    case ASK.extensionsOfType:
      if (!DESCRIBED_FILES.some((file) => file.symbols.includes(text)))
        return notFound(writer, `there is no type ${text}`);
      return writer.message(SAY.extensions, new ProtoWriter().string(1, text).finish()).finish();
    case ASK.services: {
      const list = new ProtoWriter();
      for (const name of DESCRIBED_SERVICES) list.message(1, new ProtoWriter().string(1, name).finish());
      return writer.message(SAY.services, list.finish()).finish();
    }
    default:
      throw new GrpcWireError(
        "malformed",
        "a reflection request must ask for a file, a symbol, a type or the services",
      );
  }
}

/** The matching file, followed by the files that it imports. */
function files(writer: ProtoWriter, matches: (file: DescribedFile) => boolean, otherwise: string): Uint8Array {
  const found = DESCRIBED_FILES.find(matches);
  if (found === undefined) return notFound(writer, otherwise);
  const list = new ProtoWriter().bytes(1, found.bytes);
  for (const file of DESCRIBED_FILES) if (found.dependencies.includes(file.name)) list.bytes(1, file.bytes);
  return writer.message(SAY.files, list.finish()).finish();
}

function notFound(writer: ProtoWriter, message: string): Uint8Array {
  return writer.message(SAY.error, new ProtoWriter().uint(1, GrpcCode.notFound).string(2, message).finish()).finish();
}

/** Parses the request. If it has several fields of the oneof, the last one counts. */
function parseQuestion(request: Uint8Array): Question {
  let question: Question = { host: "", field: 0, text: "" };
  try {
    for (const field of readFields(request)) {
      if (field.number === 1) question = { ...question, host: fieldText(field) };
      else if (field.number === ASK.fileOfExtension) question = { ...question, field: field.number };
      else if (field.number >= ASK.fileByName && field.number <= ASK.services) {
        question = { ...question, field: field.number, text: fieldText(field) };
      }
    }
  } catch (error) {
    if (!(error instanceof ProtoError)) throw error;
    throw new GrpcWireError("malformed", `cannot decode the reflection request: ${error.message}`, { cause: error });
  }
  return question;
}
