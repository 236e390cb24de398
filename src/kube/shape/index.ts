/**
 * What an object of the API must look like to be read. Validation keeps most of what is wrong out of an API server, but not all of it:
 * an aggregated server, an older version or a bug can send anything, and a program that reads it must not end of it.
 *
 * Owns: {@link Shape}, {@link fitShape}. Refuses to know: kinds of objects, what values mean.
 *
 * ```ts
 * const fault = fitShape(service, { fields: { spec: { fields: { ports: { list: { fields: { port: "number" } } } } } } });
 * if (fault !== undefined) log.warn("cannot be read", { why: fault }); // spec.ports[0]: null is no object
 * ```
 */
export { fitShape, type Shape } from "./shape.ts";
