import { CniCode, CniError, cniErrorJson, HIGHEST_VERSION, versionJson } from "#wire/cni";
import type { CallCoild } from "./call-coild.ts";
import { runCoil } from "./coil.ts";

/** The output and exit code of the executable; `text` ends with a line feed unless it is empty. */
export interface Outcome {
  readonly exitCode: 0 | 1;
  readonly to: "stdout" | "stderr";
  readonly text: string;
}

/** Runs a whole call of the plugin `coil`, for the executable and for a coild that has got the call from a launcher. */
export async function runPlugin(
  env: Readonly<Record<string, string | undefined>>,
  input: Promise<string>,
  callCoild: CallCoild,
): Promise<Outcome> {
  const command = env["CNI_COMMAND"] ?? "";
  if (command === "") {
    const text = `CNI plugin coil of Isthmus; set CNI_COMMAND to call it. ${versionJson(undefined)}\n`;
    return { exitCode: 1, to: "stderr", text };
  }
  try {
    const text = command === "VERSION" ? versionJson(versionOf(await input)) : await runCoil(env, input, callCoild);
    return { exitCode: 0, to: "stdout", text: text === "" ? "" : `${text}\n` };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const known = error instanceof CniError ? error : new CniError(CniCode.internal, error.message, { cause: error });
    const text = cniErrorJson(known, versionOf(await input) ?? HIGHEST_VERSION);
    return { exitCode: 1, to: "stdout", text: `${text}\n` };
  }
}

/** The cniVersion of the configuration; `undefined` if it cannot be read. */
function versionOf(stdin: string): string | undefined {
  const match = /"cniVersion"\s*:\s*"([0-9.]{1,16})"/.exec(stdin);
  return match?.[1];
}
