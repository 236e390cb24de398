/**
 * Ends a test's process that would not end by itself, and fails it: something that a test left, a listener or a child, keeps it alive and with
 * it the whole run. The message names what is active. Long runs (ISTHMUS_SOAK=full) have no limit for all tests together.
 */
import { after } from "node:test";

/** From the end of the last test until the process is ended, in milliseconds: hooks of files have that long. */
const AFTER_TESTS_MS = Number(process.env["ISTHMUS_TEST_END_MS"] ?? 60_000);
/** From the start of the process, in milliseconds. */
const LIFE_MS = 900_000;

function endAfter(ms: number, why: string): void {
  const end = (): never => {
    console.error(`${why}; active: ${process.getActiveResourcesInfo().join(", ")}`);
    process.exit(1);
  };
  setTimeout(end, ms).unref();
}

if (process.env["ISTHMUS_SOAK"] !== "full") endAfter(LIFE_MS, `the tests did not end within ${LIFE_MS / 1000} s`);
after(() => endAfter(AFTER_TESTS_MS, `the process goes on ${AFTER_TESTS_MS / 1000} s after its tests`));
