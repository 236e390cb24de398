import {
  CniCode,
  CniError,
  convertResult,
  isNetworkCommand,
  type NetworkConfig,
  parseCniCall,
  parseNetworkConfig,
} from "#wire/cni";
import { encodeCniArgs } from "#wire/cnirpc";
import type { CallCoild } from "./call-coild.ts";
import { METHOD, parseReply, requestOf, requireVersionOf, runForNetwork } from "./coil.ts";
import { isOwnNetns, ownNetnsError } from "./own-netns.ts";

/**
 * Runs another plugin with the environment of this call. Resolves to its standard output. Rejects with {@link CniError}: its own error, or 999 if
 * it cannot be run.
 */
export type RunDelegate = (delegate: {
  /** The plugin's file name, in a folder of CNI_PATH. */
  readonly type: string;
  readonly folders: readonly string[];
  readonly config: string;
}) => Promise<string>;

/** The names under which the executable is this plugin. */
export const VPC_PLUGINS: readonly string[] = ["vpc-neutron", "vpc-alcor"];

/** The socket of the node's agent, unless the configuration names another. */
const DEFAULT_VPC_SOCKET = "/run/isthmus/vpc.sock";
/** Keys of CNI_ARGS by which runtimes of virtual machines name NICs (docs/spec/vpc-nics.md#10). */
const HAND_OVER = ["Tenant", "VPC", "NICs"];

/**
 * The plugins `vpc-neutron` and `vpc-alcor`: the node's agent decides and works. A pod without a VPC is left to the plugin that the configuration
 * names as `delegate`: it runs here, because here are the paths and the environment of the runtime. Throws {@link CniError}.
 */
export async function runVpc(
  env: Readonly<Record<string, string | undefined>>,
  input: Promise<string>,
  { callAgent, runDelegate }: { readonly callAgent: CallCoild; readonly runDelegate: RunDelegate },
): Promise<string> {
  const stdin = await input;
  const config = parseNetworkConfig(stdin, DEFAULT_VPC_SOCKET);
  const command = env["CNI_COMMAND"] ?? "";
  if (isNetworkCommand(command)) return runForNetwork(command, { env, config, stdin, callCoild: callAgent });
  const call = parseCniCall(env, HAND_OVER);
  requireVersionOf(call.command, config);
  if (call.command === "ADD") {
    if (isOwnNetns(env)) throw ownNetnsError(env);
    if (config.prevResult !== undefined)
      throw new CniError(
        CniCode.invalidConfig,
        `${config.type} makes interfaces itself, so it must be the first plugin of its network`,
      );
  }
  let reply: Uint8Array;
  try {
    reply = await callAgent(config.socket, METHOD[call.command], encodeCniArgs(requestOf(call, config, stdin)));
  } catch (error) {
    if (!(error instanceof CniError) || error.cniCode !== CniCode.noVpc) throw error;
    const delegate = delegateOf(config, stdin);
    if (delegate !== undefined)
      return await runDelegate({
        ...delegate,
        folders: call.path.split(":").filter((folder) => folder.startsWith("/")),
      });
    // Nothing is there, so nothing is left to remove.
    if (call.command === "DEL") return "";
    throw error;
  }
  if (call.command !== "ADD") return "";
  return JSON.stringify(convertResult(parseReply(reply), config.cniVersion));
}

/** The configuration of the plugin for pods without a VPC, with what every plugin of a network gets. Throws {@link CniError} 7. */
function delegateOf(
  { name, cniVersion }: NetworkConfig,
  stdin: string,
): { readonly type: string; readonly config: string } | undefined {
  const { delegate, prevResult, runtimeConfig } = JSON.parse(stdin) as Readonly<Record<string, unknown>>;
  if (delegate === undefined || delegate === null) return undefined;
  const type = typeof delegate === "object" ? (delegate as Readonly<Record<string, unknown>>)["type"] : undefined;
  // A name with a slash would leave the folders of plugins.
  if (typeof type !== "string" || !/^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/.test(type))
    throw new CniError(
      CniCode.invalidConfig,
      "network configuration: delegate must be the configuration of a plugin, with its type",
    );
  const given = {
    ...(prevResult === undefined ? {} : { prevResult }),
    ...(runtimeConfig === undefined ? {} : { runtimeConfig }),
  };
  return { type, config: JSON.stringify({ ...given, ...(delegate as object), name, cniVersion }) };
}
