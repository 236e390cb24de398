/**
 * The first file that runs: it loads the rest. If that fails, it prints the reason in one line. Old versions of Node.js can parse this file.
 */
import { EXIT_FAILED, explainLoadFailure, NODE_MAJOR, nodeFault } from "./start-faults.ts";

const fault = nodeFault(process.versions.node, NODE_MAJOR);
if (fault === undefined) {
  try {
    await import("./isthmus.ts");
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
