import { ApiError } from "../errors.ts";
import type { IncludeObject, TableForm } from "../table/table.ts";

/** One entry of an Accept header. */
export interface MediaType {
  readonly type: string;
  readonly params: ReadonlyMap<string, string>;
}

/** The bound on entries of an Accept header. */
const MAX_ENTRIES = 32;

/** Parses an Accept header, in the client's order; `q` is not weighed, as no Kubernetes client uses it to reorder. */
export function parseAccept(header: string | undefined): MediaType[] {
  if (header === undefined || header.trim() === "") return [{ type: "application/json", params: new Map() }];
  return header
    .split(",")
    .slice(0, MAX_ENTRIES)
    .map((entry) => {
      const [type = "", ...params] = entry.split(";").map((part) => part.trim());
      const pairs = params.map((param) => {
        const index = param.indexOf("=");
        return index < 0 ? ([param, ""] as const) : ([param.slice(0, index), param.slice(index + 1)] as const);
      });
      return { type: type.toLowerCase(), params: new Map(pairs) };
    });
}

/** The form of objects in an answer: whole, only metadata, or a Table. */
export type Form =
  | { readonly as: "object"; readonly yaml: boolean }
  | { readonly as: "metadata"; readonly version: string }
  | { readonly as: "table"; readonly table: TableForm };

/** The first form of an Accept header that this server has. Throws ApiError `NotAcceptable`. */
export function negotiate(header: string | undefined, includeObject: string | null): Form {
  for (const { type, params } of parseAccept(header)) {
    const json = type === "application/json" || type === "*/*" || type === "application/*";
    const version = params.get("v") ?? "v1";
    const as = params.get("as");
    if (as === undefined) {
      if (json) return { as: "object", yaml: false };
      if (type === "application/yaml") return { as: "object", yaml: true };
      continue;
    }
    if (!json || params.get("g") !== "meta.k8s.io" || (version !== "v1" && version !== "v1beta1")) continue;
    if (as === "Table") return { as: "table", table: { version, include: includeOf(includeObject) } };
    if (as === "PartialObjectMetadata" || as === "PartialObjectMetadataList") return { as: "metadata", version };
  }
  throw new ApiError(
    "NotAcceptable",
    "only the following media types are accepted: application/json, application/yaml",
  );
}

function includeOf(value: string | null): IncludeObject {
  return value === "None" || value === "Object" ? value : "Metadata";
}
