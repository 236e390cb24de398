import type { JsonPatchOperation } from "#kube/client";
import { type AdmissionCause, type AdmissionRequest, denyInvalid } from "./admission.ts";
import type { AdmissionHandler } from "./server.ts";

type Unchecked = Readonly<Record<string, unknown>>;

/** The rules of one kind, pure; `Context` is the data that they need in addition to the object. */
export interface AdmissionRules<Context> {
  /** The operations that add fields on create; `undefined`: the kind has no webhooks. */
  readonly defaults?: (object: Unchecked) => readonly JsonPatchOperation[];
  readonly check: (
    object: Unchecked,
    old: Unchecked | undefined,
    context: Context,
  ) => { readonly faults: readonly AdmissionCause[]; readonly warnings: readonly string[] };
  /** Returns true if a change needs no check, so that no context has to be read. */
  readonly isUnchanged: (object: Unchecked, old: Unchecked) => boolean;
}

/** The handlers of `/mutate-PATH` and `/validate-PATH` for rules by path. `context` may wait, and fails a check by throwing. */
export function admissionHandlers<Context>(
  rules: ReadonlyMap<string, AdmissionRules<Context>>,
  context: (options: { readonly signal: AbortSignal }) => Promise<Context>,
): Readonly<Record<string, AdmissionHandler>> {
  const handlers: Record<string, AdmissionHandler> = {};
  for (const [path, one] of rules) {
    handlers[`/mutate-${path}`] = (request) => defaulting(one, request);
    handlers[`/validate-${path}`] = (request, options) => validating(one, request, () => context(options));
  }
  return handlers;
}

function defaulting<Context>(rules: AdmissionRules<Context>, { operation, object }: AdmissionRequest) {
  if (operation !== "CREATE" || object === undefined) return { allowed: true } as const;
  return { allowed: true, patch: rules.defaults?.(object) ?? [] } as const;
}

async function validating<Context>(
  rules: AdmissionRules<Context>,
  request: AdmissionRequest,
  context: () => Promise<Context>,
) {
  const { operation, object, oldObject, subResource } = request;
  if (operation !== "CREATE" && operation !== "UPDATE") return { allowed: true } as const;
  // Subresources carry other objects, or do not change the wanted state.
  if (subResource !== undefined && subResource !== "") return { allowed: true } as const;
  if (object === undefined) {
    return denyInvalid(request, [{ reason: "FieldValueRequired", field: "object", message: "Required value" }]);
  }
  const old = operation === "UPDATE" ? oldObject : undefined;
  if (old !== undefined && rules.isUnchanged(object, old)) return { allowed: true } as const;
  const { faults, warnings } = rules.check(object, old, await context());
  if (faults.length === 0) return { allowed: true, warnings } as const;
  return { ...denyInvalid(request, faults), warnings };
}
