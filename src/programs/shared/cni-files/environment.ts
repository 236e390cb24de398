import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { ConfigError } from "#base/config";
import { describeError } from "#base/errors";
import { type CniInstallation, conflistFault } from "#features/cni-installer";

/** Returns true if the environment names a configuration to install. */
export function hasConflist(env: NodeJS.ProcessEnv): boolean {
  return ["CNI_NETCONF", "CNI_NETCONF_FILE"].some((name) => (env[name] ?? "") !== "");
}

/** Reads from the environment which files are installed. Throws `ConfigError`. */
export function installationOf(env: NodeJS.ProcessEnv): CniInstallation {
  const confName = env["CNI_CONF_NAME"] ?? "10-coil.conflist";
  if (confName.includes("/") || !confName.endsWith(".conflist")) {
    throw new ConfigError("invalid-flags", [
      `CNI_CONF_NAME is "${confName}"; it must be a file name that ends in .conflist`,
    ]);
  }
  return {
    confName,
    etcDir: env["CNI_ETC_DIR"] ?? "/host/etc/cni/net.d",
    binDir: env["CNI_BIN_DIR"] ?? "/host/opt/cni/bin",
    binary: env["COIL_PATH"] === "" ? undefined : (env["COIL_PATH"] ?? "/usr/local/coil/coil"),
    plugins: pluginsOf(env["CNI_PLUGINS"] ?? ""),
    removeOthers: env["CNI_REMOVE_OTHERS"] === "true",
  };
}

/** Throws `ConfigError` for a path that is not absolute, or whose file name a runtime could not call. */
function pluginsOf(text: string): readonly string[] {
  const paths = text
    .split(",")
    .map((path) => path.trim())
    .filter((path) => path !== "");
  const wrong = paths.find((path) => !/^\/(.*\/)?[A-Za-z0-9][A-Za-z0-9_.-]*$/.test(path) || basename(path) === "coil");
  if (wrong === undefined) return paths;
  throw new ConfigError("invalid-flags", [
    `CNI_PLUGINS has "${wrong}"; it must have absolute paths of executables, and COIL_PATH that of coil`,
  ]);
}

/** Returns the text of the CNI configuration. Throws `ConfigError` if the text is not a configuration with a list of plugins. */
export async function readConflist(env: NodeJS.ProcessEnv): Promise<string> {
  const file = env["CNI_NETCONF_FILE"] ?? "";
  const inline = env["CNI_NETCONF"] ?? "";
  const source = inline === "" ? `CNI_NETCONF_FILE ${file}` : "CNI_NETCONF";
  if (inline === "" && file === "") {
    throw new ConfigError("invalid-flags", [
      "neither CNI_NETCONF nor CNI_NETCONF_FILE is set; set one of them to the network configuration",
    ]);
  }
  const fault = (why: string): ConfigError =>
    new ConfigError("invalid-flags", [`${source} is not a CNI configuration list: ${why}`]);
  let text = inline;
  try {
    if (inline === "") text = await readFile(file, "utf8");
  } catch (error) {
    throw fault(describeError(error));
  }
  const why = conflistFault(text);
  if (why !== undefined) throw fault(why);
  return text;
}
