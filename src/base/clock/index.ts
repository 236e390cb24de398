/**
 * Time as a dependency. Programs pass {@link systemClock}; tests pass a {@link FakeClock} and move it themselves.
 *
 * Owns: reading time and waiting. Does not know: why a caller waits.
 */
export { FakeClock } from "./fake-clock.ts";
export { Lateness } from "./lateness.ts";
export { type Clock, systemClock } from "./system-clock.ts";
