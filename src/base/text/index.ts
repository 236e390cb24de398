/**
 * Texts of others: on a terminal and in a log they stay on their line and draw nothing; their ends are cut in one pass; for a mistyped word the
 * known one is found. Texts of ours are filled to the columns of a terminal.
 *
 * Owns: {@link closestWord}, {@link filled}, {@link printable}, {@link printableStack}, {@link withoutEnd}. Does not know: where a text comes from. JSON for programs needs none of it.
 *
 * ```ts
 * process.stdout.write(`${printable(`${pod.name}: ${pod.status.message}`)}\n`);
 * ```
 */
export { closestWord } from "./closest.ts";
export { filled } from "./filled.ts";
export { printable, printableStack } from "./printable.ts";
export { withoutEnd } from "./without-end.ts";
