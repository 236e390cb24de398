/**
 * The form of a diagnosis: facts that could be read or not, checks with a state, a text and what can be done, and their text for people.
 *
 * Owns: {@link Fact}, {@link DoctorCheck}, {@link doctorText}. Does not know: what is looked at.
 *
 * ```ts
 * const nodes = await readFact(() => api.listAll(resources.nodes, { signal }));
 * const { ok, unknown } = checksOf("nodes");
 * const check = "fault" in nodes ? unknown(nodes.fault) : ok(`${nodes.value.items.length} Nodes`);
 * ```
 */
export { checksOf, type DoctorCheck, doctorText, type Fact, readFact } from "./check.ts";
