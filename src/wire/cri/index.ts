/**
 * The part of the Container Runtime Interface that tells which sandboxes a runtime has. Source: cri-api, pkg/apis/runtime/v1/api.proto.
 *
 * ```ts
 * const ids = decodeSandboxIds(await callGrpc(socket, LIST_SANDBOXES, LIST_ALL_SANDBOXES));
 * ```
 */
import { ExpectedError } from "#base/errors";
import { fieldBytes, fieldText, ProtoError, readFields } from "#wire/protobuf";

/** The method: gRPC, unary. */
export const LIST_SANDBOXES = "/runtime.v1.RuntimeService/ListPodSandbox";
/** A `ListPodSandboxRequest` without a filter. */
export const LIST_ALL_SANDBOXES = new Uint8Array(0);

/** The answer is no `ListPodSandboxResponse`. */
export class CriError extends ExpectedError<"malformed"> {
  override readonly name = "CriError";
}

/** The ids of the sandboxes of a `ListPodSandboxResponse`, in whatever state they are. Throws {@link CriError}. */
export function decodeSandboxIds(response: Uint8Array): string[] {
  try {
    return [...readFields(response)].filter(({ number }) => number === 1).map((item) => idOf(fieldBytes(item)));
  } catch (error) {
    if (!(error instanceof ProtoError)) throw error;
    throw new CriError("malformed", `the runtime's list of sandboxes cannot be read: ${error.message}`, {
      cause: error,
    });
  }
}

/** A sandbox without an id would make every other one look forgotten, so it is a fault of the whole list. */
function idOf(sandbox: Uint8Array): string {
  const ids = [...readFields(sandbox)].filter(({ number }) => number === 1).map(fieldText);
  const id = ids.at(-1) ?? "";
  if (id === "") throw new ProtoError("malformed", "a sandbox has no id");
  return id;
}
