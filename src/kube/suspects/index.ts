/**
 * Finds the object whose reconciliation ends the process, and sets it aside for a time.
 *
 * Owns: the record of passes that are under way, in a folder that a restart keeps; the suspects; the times. Does not know: queues, objects, events.
 *
 * An object that ends the process, or holds it until the liveness probe fails, would do so at each start, and nothing else of the controller would go on. The third
 * end within ten minutes sets its version aside for a minute, doubled up to an hour. Suspects are reconciled one at a time, and a pass that ends clears one: so those that were
 * only under way at the same time are cleared. Work that awaits nothing is a step: nothing else runs meanwhile, so a step that is under way at an end is the cause.
 *
 * ```ts
 * const passes = new PassRecord({ folder: "/run/isthmus", boot, log, clock });
 * const held = passes.hold({ controller: "egress", key }, version);
 * const pass = passes.begin({ controller: "egress", key }, version);
 * pass.end();
 * const done = passes.step({ controller: "egress", key }, () => version, () => read(object));
 * if ("value" in done) use(done.value);
 * ```
 */
export { PassRecord, type Stepped } from "./pass-record.ts";
export { type Aside, describeAside } from "./suspects.ts";
