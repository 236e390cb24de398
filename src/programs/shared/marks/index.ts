/**
 * The marks of the programs of this host in the kernel, by their estates (docs/design/estate.md).
 *
 * Owns: which estates are in force, and the reading of routes and rules beside them. Changes nothing. Does not know: what is a fault.
 *
 * ```ts
 * const { facts, refused } = await readMarks(listed, stack, { running: new Set(["coild"]) });
 * for (const line of sharedMarks(facts.inForce)) console.log(line);
 * ```
 */
export { readMarks } from "./read-marks.ts";
