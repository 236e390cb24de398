/**
 * The standalone CNI executable: it runs the plugin whose name is its file name. Bun compiles the file, and Node.js can run it too. It
 * holds no state and decides nothing: coild does both (docs/spec/pod-network.md#11). Normally the launcher passes the call to coild, and
 * this executable does not run (docs/design/cni-executable.md).
 */
import { DEFAULT_SOCKET } from "#wire/cni";
import { STANDALONE_SUFFIX } from "#wire/cni-handover";
import {
  type CallCoild,
  DEFAULT_VPC_SOCKET,
  runPlugin,
  runVpcPlugin,
  VPC_PLUGINS,
} from "../../shared/cni-plugin/index.ts";
import { grpcCaller } from "./call-by-grpc.ts";
import { onlyServed } from "./only-served.ts";
import { runDelegate } from "./run-delegate.ts";
import { fileName, readStdin, write } from "./runtime.ts";

/** The names under which the executable runs. */
const NAMES: readonly string[] = ["coil", "main.ts", ...VPC_PLUGINS];

const caller = (kind: string, usual: string): CallCoild => onlyServed(grpcCaller(kind), { kind, usual });

async function main(): Promise<number> {
  const file = fileName();
  const name = file.endsWith(STANDALONE_SUFFIX) ? file.slice(0, -STANDALONE_SUFFIX.length) : file;
  if (!NAMES.includes(name) && !name.startsWith("isthmus-cni")) {
    await write(
      "stderr",
      `${name}: there is no CNI plugin of this name; install this file as coil, ${VPC_PLUGINS.join(" or ")}\n`,
    );
    return 1;
  }
  // Without a command it reads no input, because a person and not a runtime has started it.
  const input = (process.env["CNI_COMMAND"] ?? "") === "" ? Promise.resolve("") : readStdin();
  const { exitCode, to, text } = VPC_PLUGINS.includes(name)
    ? await runVpcPlugin(name, process.env, input, { callAgent: caller("nic-agent", DEFAULT_VPC_SOCKET), runDelegate })
    : await runPlugin(process.env, input, caller("coild", DEFAULT_SOCKET));
  await write(to, text);
  return exitCode;
}

// There is no top-level await, because Bun's bytecode needs a script. A rejection of main is a bug and ends the process with its trace.
void main().then((code) => {
  process.exitCode = code;
});
