/**
 * The first file that runs: it loads the rest. If that fails, it prints the reason in one line. Old versions of Node.js can parse this file.
 *
 * The build makes a file for each program that is called often (`tools/build.ts`), and the rest is one bundle.
 */
import { existsSync } from "node:fs";
import { enableCompileCache, flushCompileCache } from "node:module";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { setV8Flag } from "#base/v8-flags";
import { loadCompiled } from "./load-compiled.ts";
import { ownFileOf } from "./own-file.ts";
import { EXIT_FAILED, explainLoadFailure, NODE_MAJOR, nodeFault } from "./start-faults.ts";
import { isTrustedFolder } from "./trusted-files.ts";

// V8 takes compiled code only with the flags with which it was made, and that of Node's own modules was made with the usual ones: without it,
// a start takes 30 ms more of the processor. The heap has its size by now, so the launcher's flag has done its work.
if (process.execArgv.some((word) => word.startsWith("--initial-old-space-size=")))
  setV8Flag("--initial-old-space-size=0");

const fault = nodeFault(process.versions.node, NODE_MAJOR);
if (fault === undefined) {
  try {
    const calledAs = process.env["ISTHMUS_CALLED_AS"] ?? basename(process.argv[1] ?? "");
    // Source maps are those of the bundle.
    const hasMaps = process.execArgv.includes("--enable-source-maps");
    const own = hasMaps ? undefined : ownFileOf(process.env["ISTHMUS_OWN_FILES"], calledAs, process.argv[2]);
    const kept = process.env["ISTHMUS_OWN_FILES"] === undefined ? undefined : keepCompiled();
    const { main } =
      own === undefined ? await import("./isthmus.ts") : loadCompiled(new URL(own, import.meta.url), kept);
    process.exitCode = await main();
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

/**
 * Compiled code from the build, which is beside it; who may not write there only reads it. Node looks at no owner and no mode, so it gets the folder if nobody
 * else can have written there; its own files are written with a mode that the umask cannot widen. Returns the folder.
 */
function keepCompiled(): string {
  const folder = fileURLToPath(new URL(".compile-cache", import.meta.url));
  const mask = process.umask(0o022);
  // It makes a folder at once.
  if (!existsSync(folder) || isTrustedFolder(folder)) enableCompileCache({ directory: folder, portable: true });
  process.umask(mask);
  process.once("exit", () => {
    process.umask(0o022);
    flushCompileCache();
  });
  return folder;
}
