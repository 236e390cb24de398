/**
 * Imported first by the executable, for its effects: settings of the process that must precede the loading of the called program.
 *
 * - SIGUSR1 and SIGUSR2 do nothing, as in the programs that these replace. Node would open its debugger at SIGUSR1, on a port that asks nobody for a login:
 *   the launcher starts it without that, and where there is no launcher, this handler is in the debugger's place.
 * - SIGHUP ends no program that reads its files again at that signal. Each such program later handles the signal itself; its first
 *   reading of the files comes after this.
 * - The young generation of these programs' heaps keeps its first size. Programs of the tunnel allocate mostly buffers that
 *   are read, relayed and then garbage. A young generation of two MiB stays in the processor's cache; collecting it is as cheap as with
 *   V8's 32 MiB, and buffers are freed sooner: on 2 cores (bench/tunnel.ts) one connection has 1.4 times the throughput, and each
 *   process needs 50 MiB less. Daemons with little work need 6 MiB less. The launcher sets it by an option of Node. Without the launcher it is
 *   a flag of V8, and must come first, because loading the executable would let the young generation grow. V8 then takes no compiled code of
 *   Node's own modules, which costs each start 40 ms of the processor.
 */
import { basename } from "node:path";
import { setV8Flag } from "#base/v8-flags";
import { findProgram } from "../programs.ts";

const calledAs = process.env["ISTHMUS_CALLED_AS"] ?? basename(process.argv[1] ?? "");
/** The program, or those that `isthmus node` runs together. */
const called = [calledAs, process.argv[2] ?? ""];
const named = called.includes("node") ? process.argv : called;
const programs = named.flatMap((name) => findProgram(name) ?? []);

for (const name of ["SIGUSR1", "SIGUSR2"] as const) process.on(name, () => undefined);
if (programs.some(({ reloads }) => reloads)) process.on("SIGHUP", () => undefined);
const isSmall = process.execArgv.some((word) => word.startsWith("--max-semi-space-size="));
const KEPT_YOUNG: readonly unknown[] = ["stream", "tables", "small"];
if (!isSmall && programs.some(({ memory }) => KEPT_YOUNG.includes(memory))) setV8Flag("--semi-space-growth-factor=1");
