import * as v from "valibot";

/** Reads Spring's body of an error: `{"status": 412, "error": "Precondition Failed", "message": "…"}`. */
export function alcorFault(body: unknown): { readonly type?: string; readonly message?: string } {
  const result = v.safeParse(v.object({ error: v.optional(v.string()), message: v.optional(v.string()) }), body);
  if (!result.success) return {};
  const { error, message } = result.output;
  return { ...(error === undefined ? {} : { type: error }), ...(message === undefined ? {} : { message }) };
}
