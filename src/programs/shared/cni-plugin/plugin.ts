import { CniCode, CniError, cniErrorJson, HIGHEST_VERSION, versionJson } from "#wire/cni";
import type { CallCoild } from "./call-coild.ts";
import { runCoil } from "./coil.ts";
import { type RunDelegate, runVpc } from "./vpc.ts";

/** The output and exit code of the executable; `text` ends with a line feed unless it is empty. */
export interface Outcome {
  readonly exitCode: 0 | 1;
  readonly to: "stdout" | "stderr";
  readonly text: string;
}

type Env = Readonly<Record<string, string | undefined>>;

/** Runs a whole call of the plugin `coil`, for the executable and for a coild that has got the call from a launcher. */
export function runPlugin(env: Env, input: Promise<string>, callCoild: CallCoild): Promise<Outcome> {
  return run({ name: "coil", env, input }, () => runCoil(env, input, callCoild));
}

/** Runs a whole call of the plugin `vpc-neutron` or `vpc-alcor`; `callAgent` reaches the node's agent, `runDelegate` another plugin. */
export function runVpcPlugin(
  name: string,
  env: Env,
  input: Promise<string>,
  ways: { readonly callAgent: CallCoild; readonly runDelegate: RunDelegate },
): Promise<Outcome> {
  return run({ name, env, input }, () => runVpc(env, input, ways));
}

async function run(
  { name, env, input }: { readonly name: string; readonly env: Env; readonly input: Promise<string> },
  work: () => Promise<string>,
): Promise<Outcome> {
  const command = env["CNI_COMMAND"] ?? "";
  if (command === "") {
    const text = `CNI plugin ${name} of Isthmus; set CNI_COMMAND to call it. ${versionJson(undefined)}\n`;
    return { exitCode: 1, to: "stderr", text };
  }
  try {
    const text = command === "VERSION" ? versionJson(versionOf(await input)) : await work();
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
