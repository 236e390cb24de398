import {
  type CniCall,
  CniCode,
  CniError,
  type CniNetworkCommand,
  type CniResult,
  compareVersions,
  convertResult,
  isNetworkCommand,
  type NetworkConfig,
  parseCniCall,
  parseNetworkConfig,
  VALID_ATTACHMENTS,
} from "#wire/cni";
import { type CniArgs, EMPTY_CNI_ARGS } from "#wire/cnirpc";
import type { CallCoild } from "./call-coild.ts";
import { hasAttachment } from "./leftover.ts";
import { isOwnNetns, ownNetnsError } from "./own-netns.ts";
import { servedLately } from "./served.ts";

/** The methods of the daemon by command. */
export const METHOD = { ADD: "Add", DEL: "Del", CHECK: "Check" } as const;

/** The `coil` plugin: passes the call to coild, and returns coild's answer. Throws {@link CniError}. */
export async function runCoil(
  env: Readonly<Record<string, string | undefined>>,
  input: Promise<string>,
  callCoild: CallCoild,
): Promise<string> {
  const stdin = await input;
  const inOwnNetns = isOwnNetns(env);
  const command = env["CNI_COMMAND"] ?? "";
  if (isNetworkCommand(command))
    return runForNetwork(command, { env, config: parseNetworkConfig(stdin), stdin, callCoild });
  const call = parseCniCall(env);
  const config = parseNetworkConfig(stdin);
  requireVersionOf(call.command, config);
  if (inOwnNetns && call.command !== "DEL") throw ownNetnsError(env);
  let reply: CniResult | undefined;
  try {
    reply = await callCoild(config.socket, { method: METHOD[call.command], args: requestOf(call, config, stdin) });
  } catch (error) {
    if (await isDoneWithout(call, error)) return "";
    throw error;
  }
  // The common library does the same: everything that can be removed is removed, and then the fault is returned.
  if (inOwnNetns) throw ownNetnsError(env);
  if (call.command !== "ADD") return "";
  if (config.prevResult !== undefined) return JSON.stringify(prevResultOf(config, config.prevResult));
  return JSON.stringify(convertResult(requireResult(reply), config.cniVersion));
}

/** The prevResult of the runtime, which has the configuration's version; a prevResult of another version is converted. */
function prevResultOf({ rawPrevResult, cniVersion }: NetworkConfig, prevResult: CniResult): object {
  const raw = rawPrevResult as { readonly cniVersion?: unknown };
  return raw.cniVersion === cniVersion ? raw : convertResult(prevResult, cniVersion);
}

/** Runs GC or STATUS, which concern a network, not a container. Prints nothing on success. */
export async function runForNetwork(
  command: CniNetworkCommand,
  {
    env,
    config,
    stdin,
    callCoild,
  }: {
    readonly env: Readonly<Record<string, string | undefined>>;
    readonly config: NetworkConfig;
    readonly stdin: string;
    readonly callCoild: CallCoild;
  },
): Promise<string> {
  requireVersionOf(command, config);
  if (command === "GC") {
    const { validAttachments: attachments, name: network } = config;
    if (attachments === undefined) {
      throw new CniError(
        CniCode.invalidConfig,
        `network configuration: ${VALID_ATTACHMENTS} is missing, and GC needs this field`,
      );
    }
    await callCoild(config.socket, { method: "GC", args: { network, attachments } });
    return "";
  }
  const args = { ...EMPTY_CNI_ARGS, path: env["CNI_PATH"] ?? "", stdinData: new TextEncoder().encode(stdin) };
  try {
    await callCoild(config.socket, { method: "Status", args });
  } catch (error) {
    if (!(error instanceof CniError) || error.cniCode !== CniCode.tryAgainLater) throw error;
    // Without coild no ADD can be served. One that is replaced is back in a moment, and the node keeps its pods in their Services meanwhile.
    if (servedLately(config.socket, Date.now())) return "";
    throw new CniError(CniCode.notAvailable, error.message, { details: error.details, cause: error });
  }
  return "";
}

/** The first version of the configuration that has the command (CNI specification, "Version considerations"). */
const FIRST_VERSION: Readonly<Record<string, string>> = { CHECK: "0.4.0", GC: "1.1.0", STATUS: "1.1.0" };

/** Throws {@link CniError} 1 if the version of the configuration is older than the command. */
export function requireVersionOf(command: string, { cniVersion }: NetworkConfig): void {
  const first = FIRST_VERSION[command];
  if (first === undefined || compareVersions(cniVersion, first) >= 0) return;
  throw new CniError(
    CniCode.incompatibleVersion,
    `config version does not allow ${command}: it needs cniVersion ${first} or later, not ${cniVersion}`,
  );
}

/**
 * True if a DEL can succeed although coild cannot be reached: the network namespace is deleted and no link of the host has this
 * attachment's alias, so nothing is left to delete. Otherwise the DEL is an error, so that the runtime tries again.
 */
async function isDoneWithout(call: CniCall, error: unknown): Promise<boolean> {
  if (call.command !== "DEL" || !(error instanceof CniError) || error.cniCode !== CniCode.tryAgainLater) return false;
  return !(await hasAttachment(call));
}

/** The message for a call. */
export function requestOf(call: CniCall, config: NetworkConfig, stdin: string): CniArgs {
  const { prevResult } = config;
  return {
    containerId: call.containerId,
    netns: call.netns,
    ifname: call.ifname,
    args: { ...call.args, IS_CHAINED: String(prevResult !== undefined) },
    path: call.path,
    stdinData: new TextEncoder().encode(stdin),
    ips: (prevResult?.ips ?? []).map((ip) => ip.address.split("/")[0] ?? ""),
    interfaces: Object.fromEntries(
      (prevResult?.interfaces ?? []).map((link) => [link.name, link.sandbox !== undefined]),
    ),
  };
}

/** The result in an answer to ADD. Throws {@link CniError} 999. */
export function requireResult(result: CniResult | undefined): CniResult {
  if (result === undefined) throw new CniError(CniCode.internal, "the answer to ADD cannot be decoded");
  return result;
}
