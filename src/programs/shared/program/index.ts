/**
 * A program of the executable: its definition, how it is run, and which privileges it needs.
 *
 * Owns: {@link Program}, the command line common to all, signals, exit codes, privileges. Does not know: which programs there are
 * (`programs.ts`), logs, health and the API server (`shared/daemon`).
 */
export { launcherCommand, ownCommand } from "./own-command.ts";
export { LAB_CAPABILITIES, PrivilegeError, type Privileges, requirePrivileges } from "./privileges.ts";
export { defineProgram, EXIT, helpText, type Program, parseProgram, runProgram } from "./run-program.ts";
