/**
 * Checks that an object of the API has the fields that its reader needs. Validation keeps most faulty objects out of an API server, but not
 * all: an aggregated server, an older version or a bug can send anything, and a program that reads it must not crash.
 *
 * Owns: {@link Shape}, {@link fitShape}, {@link field}. Does not know: kinds of objects, what values mean.
 *
 * ```ts
 * const fault = fitShape(service, { fields: { spec: { fields: { ports: { list: { fields: { port: "number" } } } } } } });
 * if (fault !== undefined) log.warn("cannot be read", { why: fault }); // spec.ports[0]: null is not an object
 * ```
 */
export { field, fitShape, type Shape } from "./shape.ts";
