import { CniCode, CniError } from "./errors.ts";

/** The commands for a container. */
export type CniCommand = "ADD" | "DEL" | "CHECK";

/** A validated invocation. Optional strings are empty when absent. */
export interface CniCall {
  readonly command: CniCommand;
  readonly containerId: string;
  readonly netns: string;
  readonly ifname: string;
  readonly args: Readonly<Record<string, string>>;
  readonly path: string;
}

/** A container id, network name or attachment name (CNI specification, "Parameters"). */
export const NAME_PATTERN = /^[a-zA-Z0-9][a-zA-Z0-9_.-]*$/;

const REQUIRED: Readonly<Record<CniCommand, readonly string[]>> = {
  ADD: ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"],
  DEL: ["CNI_CONTAINERID", "CNI_IFNAME"],
  CHECK: ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"],
};

/** The commands of CNI 1.1 that are for a network and for no container. */
export type CniNetworkCommand = "GC" | "STATUS";

export function isNetworkCommand(text: string): text is CniNetworkCommand {
  return text === "GC" || text === "STATUS";
}

export function isCniCommand(text: string): text is CniCommand {
  return Object.hasOwn(REQUIRED, text);
}

/**
 * Validates the environment of ADD, DEL or CHECK. `ownArgs` are the keys of CNI_ARGS that the plugin knows besides those of Kubernetes. Throws
 * {@link CniError} 4; all missing variables are named at once.
 */
export function parseCniCall(
  env: Readonly<Record<string, string | undefined>>,
  ownArgs: readonly string[] = [],
): CniCall {
  const command = env["CNI_COMMAND"] ?? "";
  if (!isCniCommand(command)) throw invalid(`unknown CNI_COMMAND: ${command}`);
  const missing = REQUIRED[command].filter((name) => (env[name] ?? "") === "");
  if (missing.length > 0) throw invalid(`required env variables [${missing.join(",")}] missing`);
  const containerId = env["CNI_CONTAINERID"] ?? "";
  if (!NAME_PATTERN.test(containerId)) throw invalid(`invalid characters in CNI_CONTAINERID: "${containerId}"`);
  return {
    command,
    containerId,
    netns: env["CNI_NETNS"] ?? "",
    ifname: validIfname(env["CNI_IFNAME"] ?? ""),
    args: parseCniArgs(env["CNI_ARGS"] ?? "", ownArgs),
    path: env["CNI_PATH"] ?? "",
  };
}

const KNOWN_ARGS = new Set([
  "K8S_POD_NAMESPACE",
  "K8S_POD_NAME",
  "K8S_POD_INFRA_CONTAINER_ID",
  "K8S_POD_UID",
  "IgnoreUnknown",
  "IS_CHAINED",
]);

/** Parses `K=V;K=V`. Unknown keys are an error unless `IgnoreUnknown` is 1 or true. Throws {@link CniError} 4. */
export function parseCniArgs(text: string, ownArgs: readonly string[] = []): Record<string, string> {
  const pairs = text
    .split(";")
    .filter((pair) => pair !== "")
    .map((pair): [string, string] => {
      const at = pair.indexOf("=");
      if (at < 1) throw invalid(`CNI_ARGS has "${pair}" where KEY=VALUE is expected`);
      return [pair.slice(0, at), pair.slice(at + 1)];
    });
  const args = Object.fromEntries(pairs);
  const unknown = pairs.map(([key]) => key).filter((key) => !KNOWN_ARGS.has(key) && !ownArgs.includes(key));
  const ignore = ["1", "true", "True", "TRUE"].includes(args["IgnoreUnknown"] ?? "");
  if (unknown.length > 0 && !ignore) {
    throw invalid(`CNI_ARGS has unknown keys: ${unknown.join(", ")} (IgnoreUnknown=1 allows them)`);
  }
  return args;
}

function validIfname(name: string): string {
  const fault =
    new TextEncoder().encode(name).length > 15
      ? "is longer than 15 bytes"
      : name === "." || name === ".."
        ? "is . or .."
        : /[/:\s]/.test(name)
          ? "has a slash, colon or white space"
          : undefined;
  if (fault !== undefined) throw invalid(`CNI_IFNAME "${name}" ${fault}`);
  return name;
}

function invalid(message: string): CniError {
  return new CniError(CniCode.invalidEnvironment, message);
}
