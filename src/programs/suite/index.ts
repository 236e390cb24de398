/**
 * Finding and asking the programs of the suite: processes of this machine, and pods through the API server.
 *
 * Owns: the reading of /proc, requests to `/readyz` and `/metrics` with their limits. Does not know: what is reported of the answers.
 */
export { AnswerError, askHere, askInstance, within } from "./ask.ts";
export { listenerOf } from "./listeners.ts";
export { optional, type SuiteProcess, suiteProcesses } from "./processes.ts";
