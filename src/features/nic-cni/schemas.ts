import * as v from "valibot";

/** Schemas that plans of the journal share. */
export const texts = v.array(v.string());
export const whole = v.pipe(v.number(), v.integer(), v.minValue(0));
export const route = v.object({
  dst: v.string(),
  via: v.exactOptional(v.string()),
  table: v.exactOptional(whole),
  metric: v.exactOptional(whole),
  onlink: v.exactOptional(v.boolean()),
});
