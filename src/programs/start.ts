/**
 * The first file that runs: it loads the rest. If that fails, it prints the reason in one line. Old versions of Node.js can parse this file.
 *
 * The build makes a file for each program that is called often (`tools/build.ts`), and the rest is one bundle.
 */
import { basename } from "node:path";
import { ownFileOf } from "./own-file.ts";
import { EXIT_FAILED, explainLoadFailure, NODE_MAJOR, nodeFault } from "./start-faults.ts";

const fault = nodeFault(process.versions.node, NODE_MAJOR);
if (fault === undefined) {
  try {
    const calledAs = process.env["ISTHMUS_CALLED_AS"] ?? basename(process.argv[1] ?? "");
    const own = ownFileOf(process.env["ISTHMUS_OWN_FILES"], calledAs, process.argv[2]);
    await (own === undefined ? import("./isthmus.ts") : import(new URL(own, import.meta.url).href));
  } catch (error) {
    const explained = explainLoadFailure(error);
    if (explained === undefined) throw error;
    process.stderr.write(`isthmus: ${explained}\n`);
    process.exitCode = EXIT_FAILED;
  }
} else {
  process.stderr.write(`isthmus: ${fault}\n`);
  process.exitCode = EXIT_FAILED;
}
