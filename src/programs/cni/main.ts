/**
 * The CNI executable: one file contains every plugin type of the suite and runs the plugin that its file name names. Bun compiles the
 * file, and Node can run it too. It holds no state and decides nothing: coild does both (docs/spec/pod-network.md#11).
 */
import { CniCode, CniError, cniErrorJson, HIGHEST_VERSION, versionJson } from "#wire/cni";
import { runCoil } from "./coil.ts";
import { fileName, readStdin, writeStderr, writeStdout } from "./runtime.ts";

/** A plugin: takes the environment and the configuration, returns what goes to standard output. */
export type Plugin = (env: Readonly<Record<string, string | undefined>>, input: Promise<string>) => Promise<string>;

/** The plugins by the file name of the executable. */
const PLUGINS: Readonly<Record<string, Plugin>> = { coil: runCoil };

async function main(): Promise<number> {
  const name = fileName();
  const plugin = PLUGINS[name] ?? (name.startsWith("isthmus-cni") || name === "main.ts" ? runCoil : undefined);
  const command = process.env["CNI_COMMAND"] ?? "";
  if (plugin === undefined) {
    await writeStderr(`${name}: no such plugin; install this file as ${Object.keys(PLUGINS).join(" or ")}\n`);
    return 1;
  }
  if (command === "") {
    await writeStderr(`CNI plugin coil of Isthmus; set CNI_COMMAND to call it. ${versionJson(undefined)}\n`);
    return 1;
  }
  const input = readStdin();
  try {
    await writeStdout(command === "VERSION" ? versionJson(versionOf(await input)) : await plugin(process.env, input));
    return 0;
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const known = error instanceof CniError ? error : new CniError(CniCode.internal, error.message, { cause: error });
    await writeStdout(cniErrorJson(known, versionOf(await input) ?? HIGHEST_VERSION));
    return 1;
  }
}

/** The cniVersion of the configuration; `undefined` if it cannot be read. */
function versionOf(stdin: string): string | undefined {
  const match = /"cniVersion"\s*:\s*"([0-9.]{1,16})"/.exec(stdin);
  return match?.[1];
}

// There is no top-level await, because Bun's bytecode needs a script. A rejection of main is a bug and ends the process with its trace.
void main().then((code) => {
  process.exitCode = code;
});
