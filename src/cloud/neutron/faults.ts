import * as v from "valibot";
import { keystoneFault } from "#cloud/keystone";

const neutronErrorSchema = v.object({
  NeutronError: v.union([
    v.object({ type: v.optional(v.string()), message: v.optional(v.string()), detail: v.optional(v.unknown()) }),
    v.string(),
  ]),
});

/** Reads the body of a refusal: `{"NeutronError": …}`, and `{"error": …}` of a token that is not accepted. */
export function neutronFault(body: unknown): { readonly type?: string; readonly message?: string } {
  const result = v.safeParse(neutronErrorSchema, body);
  if (!result.success) return keystoneFault(body);
  const fault = result.output.NeutronError;
  if (typeof fault === "string") return { message: fault };
  const { type, message } = fault;
  return { ...(type === undefined ? {} : { type }), ...(message === undefined ? {} : { message }) };
}
