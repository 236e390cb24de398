/**
 * Finding and asking the programs of the suite: processes of this machine, and pods through the API server.
 *
 * Owns: the reading of /proc and of the machine's uplinks, requests to `/readyz` and `/metrics` with their limits, lists of objects. Does not know: what is reported of the answers.
 */
export { askHere, askInstance, within } from "./ask.ts";
export { collect, count, listOptional, listPods, REQUEST_MS, readPolicies, requireServer } from "./list.ts";
export { listenerOf } from "./listeners.ts";
export { optional, type SuiteProcess, suiteProcesses, variableOf } from "./processes.ts";
export { linksOfRoutes, uplinksOf } from "./uplinks.ts";
