import type { BlockRequest } from "./types.ts";

/** The outcome of a BlockRequest. */
export type BlockRequestResult =
  | { readonly state: "in-progress" }
  | { readonly state: "complete"; readonly addressBlockName: string }
  | { readonly state: "failed"; readonly reason: string; readonly message: string };

/** The result rule of docs/spec/pod-network.md#2.4: any `Failed=True` fails it, else `Complete=True` completes it. */
export function blockRequestResult(request: Pick<BlockRequest, "status">): BlockRequestResult {
  const conditions = request.status?.conditions ?? [];
  const failed = conditions.find((condition) => condition.type === "Failed" && condition.status === "True");
  if (failed !== undefined) {
    return { state: "failed", reason: failed.reason ?? "unknown", message: failed.message ?? failed.reason ?? "" };
  }
  const complete = conditions.some((condition) => condition.type === "Complete" && condition.status === "True");
  if (!complete) return { state: "in-progress" };
  const addressBlockName = request.status?.addressBlockName ?? "";
  // The controller never writes an empty name, so waiting for a name would never end.
  if (addressBlockName === "") {
    return { state: "failed", reason: "no block", message: "the request is complete but names no AddressBlock" };
  }
  return { state: "complete", addressBlockName };
}
