/**
 * At the end of a test's process: writes the seconds that it and the processes that it waited for have used of a processor, into a file of the
 * folder that ISTHMUS_PROCESSOR_LOG names. Unlike the time of a file, this does not depend on what runs beside it.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Ticks of /proc/PID/stat in a second (sysconf(3), _SC_CLK_TCK): 100 on every architecture that Linux has now. */
const TICKS = 100;

const folder = process.env["ISTHMUS_PROCESSOR_LOG"];
// Programs that the test starts inherit the variable, but not this import.
if (folder !== undefined && process.argv[1] !== undefined) {
  process.on("exit", () => {
    const stat = readFileSync("/proc/self/stat", "utf8");
    // proc(5): after the name in parentheses come state and ten fields, then utime, stime, cutime, cstime.
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const seconds = fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) / TICKS;
    writeFileSync(join(folder, String(process.pid)), `${seconds} ${process.argv[1]}\n`);
  });
}
