/**
 * The front end of a lab: it starts, keeps and stops the process that holds the lab.
 *
 * Owns: the command line and the messages of that process. Does not know: what is in a lab (`lab/host`).
 */
export { cniExecutable, type LabHost, startHost, stopHost } from "./lab-front.ts";
