import type { KubeApi } from "#kube/client";
import { notLeading } from "../errors.ts";

/** The calls of the API server that the controller makes. */
export type ClaimApi = Pick<KubeApi, "get" | "create" | "patch" | "delete">;

/**
 * An API server that is written to only while this process leads: what a process learns after it was stopped for a while must not replace what
 * its successor has stored. Writes reject with `not-leading` otherwise.
 */
export function guardedApi(api: ClaimApi, isLeading: () => boolean): ClaimApi {
  const guarded = async <Value>(write: () => Promise<Value>): Promise<Value> => {
    if (!isLeading()) throw notLeading();
    return write();
  };
  return {
    get: (type, ref, options) => api.get(type, ref, options),
    create: (type, object, options) => guarded(() => api.create(type, object, options)),
    patch: (type, ref, patch, options) => guarded(() => api.patch(type, ref, patch, options)),
    delete: (type, ref, options) => guarded(() => api.delete(type, ref, options)),
  };
}
