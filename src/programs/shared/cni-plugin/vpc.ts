import {
  type CniCall,
  CniCode,
  CniError,
  type CniResult,
  convertResult,
  isNetworkCommand,
  type NetworkConfig,
  parseCniCall,
  parseNetworkConfig,
} from "#wire/cni";
import type { CallCoild } from "./call-coild.ts";
import { METHOD, requestOf, requireResult, requireVersionOf, runForNetwork } from "./coil.ts";
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
export const DEFAULT_VPC_SOCKET = "/run/isthmus/vpc.sock";
/** Keys of CNI_ARGS by which runtimes of virtual machines name NICs (docs/spec/vpc-nics.md#10). */
const HAND_OVER = ["Tenant", "VPC", "NICs"];

/**
 * The plugins `vpc-neutron` and `vpc-alcor`: the node's agent decides and works. A pod without a VPC is left to the plugin, or the list of plugins, that the configuration
 * names as `delegate`: they run here, because here are the paths and the environment of the runtime. Throws {@link CniError}.
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
  let reply: CniResult | undefined;
  try {
    reply = await callAgent(config.socket, { method: METHOD[call.command], args: requestOf(call, config, stdin) });
  } catch (error) {
    if (!(error instanceof CniError) || error.cniCode !== CniCode.noVpc) throw error;
    const delegates = delegatesOf(config, stdin);
    if (delegates !== undefined) {
      if (call.command === "CHECK" && isCheckDisabled(stdin)) return "";
      const folders = call.path.split(":").filter((folder) => folder.startsWith("/"));
      return await runDelegates(call.command, delegates, ({ type, config: given }) =>
        runDelegate({ type, config: JSON.stringify(given), folders }),
      );
    }
    // Nothing is there, so nothing is left to remove.
    if (call.command === "DEL") return "";
    throw error;
  }
  if (call.command !== "ADD") return "";
  return JSON.stringify(convertResult(requireResult(reply), config.cniVersion));
}

/** A plugin for pods without a VPC, and its configuration with what a runtime puts into it. */
interface Delegate {
  readonly type: string;
  readonly config: Readonly<Record<string, unknown>>;
}

/**
 * The plugins for pods without a VPC, in their order: one, or those of a list. Each gets the network's name and version and what every plugin of a network gets; one of a
 * list that part of the runtime's data that it declares as its capabilities, as runtimes have it. `undefined`: there is no delegate. Throws {@link CniError} 7.
 */
function delegatesOf({ name, cniVersion }: NetworkConfig, stdin: string): readonly Delegate[] | undefined {
  const { delegate, prevResult, runtimeConfig } = JSON.parse(stdin) as Readonly<Record<string, unknown>>;
  if (delegate === undefined || delegate === null) return undefined;
  const { plugins, type } = recordOf(delegate);
  const given = prevResult === undefined ? {} : { prevResult };
  const isList = type === undefined && plugins !== undefined;
  const listed: readonly unknown[] = isList ? (Array.isArray(plugins) ? plugins : []) : [delegate];
  if (listed.length === 0) throw wrongDelegate();
  return listed.map((one): Delegate => {
    const plugin = recordOf(one);
    // A name with a slash would leave the folders of plugins.
    if (typeof plugin["type"] !== "string" || !/^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/.test(plugin["type"]))
      throw wrongDelegate();
    const data = isList ? declared(plugin, runtimeConfig) : runtimeConfig;
    const config = { ...given, ...(data === undefined ? {} : { runtimeConfig: data }), ...plugin, name, cniVersion };
    return { type: plugin["type"], config };
  });
}

/** Returns true if the list of delegates says that it is not to be checked: runtimes read that of a network themselves. */
function isCheckDisabled(stdin: string): boolean {
  const { delegate } = JSON.parse(stdin) as Readonly<Record<string, unknown>>;
  const { disableCheck, type } = recordOf(delegate);
  return type === undefined && (disableCheck === true || disableCheck === "true");
}

function wrongDelegate(): CniError {
  return new CniError(
    CniCode.invalidConfig,
    "network configuration: delegate must be the configuration of a plugin, with its type, or of a list of them, with plugins",
  );
}

/** The runtime's data for the capabilities that a plugin declares. */
function declared({ capabilities }: Readonly<Record<string, unknown>>, runtimeConfig: unknown): object | undefined {
  const wanted = recordOf(capabilities);
  const parts = Object.entries(recordOf(runtimeConfig)).filter(
    ([key]) => Object.hasOwn(wanted, key) && wanted[key] === true,
  );
  return parts.length === 0 ? undefined : Object.fromEntries(parts);
}

/** Runs plugins as a runtime runs those of a network: for ADD each has the result of the one before, for DEL the last one comes first. Returns the last output. */
async function runDelegates(
  command: CniCall["command"],
  delegates: readonly Delegate[],
  run: (delegate: Delegate) => Promise<string>,
): Promise<string> {
  let output = "";
  for (const [at, delegate] of (command === "DEL" ? delegates.toReversed() : delegates).entries()) {
    const isBehind = command === "ADD" && at > 0;
    output = await run(
      isBehind ? { ...delegate, config: { ...delegate.config, prevResult: resultOf(output) } } : delegate,
    );
  }
  return output;
}

/** The output of an ADD as the next plugin gets it. Throws {@link CniError} 999. */
function resultOf(output: string): unknown {
  try {
    return JSON.parse(output);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new CniError(CniCode.internal, "the result of a delegate cannot be decoded: it is not JSON", {
      cause: error,
    });
  }
}

function recordOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : {};
}
