import { CniCode, CniError } from "#wire/cni";
import type { RunDelegate } from "../../shared/cni-plugin/index.ts";

/** The maximum output of a delegate, in bytes. */
const MAX_OUTPUT_BYTES = 4 * 1024 * 1024;

/** Runs the plugin from the first folder that has it, with the environment of this process. */
export const runDelegate: RunDelegate = async ({ type, folders, config }) => {
  // Few calls have a delegate; a static import would load the modules at every start.
  const { existsSync } = process.getBuiltinModule("node:fs");
  const { spawnSync } = process.getBuiltinModule("node:child_process");
  const path = folders.map((folder) => `${folder}/${type}`).find((one) => existsSync(one));
  if (path === undefined)
    throw new CniError(
      CniCode.invalidConfig,
      `network configuration: delegate: there is no plugin ${type} in CNI_PATH (${folders.join(":")})`,
    );
  const { status, stdout, error } = spawnSync(path, {
    input: config,
    encoding: "utf8",
    maxBuffer: MAX_OUTPUT_BYTES,
    stdio: ["pipe", "pipe", "inherit"],
  });
  if (error !== undefined)
    throw new CniError(CniCode.internal, `delegate ${path} cannot be run: ${error.message}`, { cause: error });
  if (status === 0) return stdout.trimEnd();
  throw errorOf(stdout, `delegate ${path} ended with status ${status ?? "none"}`);
};

/** The error that a plugin has printed. */
function errorOf(stdout: string, fallback: string): CniError {
  try {
    const { code, msg, details } = JSON.parse(stdout) as Readonly<Record<string, unknown>>;
    if (typeof code === "number" && typeof msg === "string")
      return new CniError(code, msg, typeof details === "string" ? { details } : {});
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  return new CniError(CniCode.internal, fallback, { details: stdout.slice(0, 500) });
}
