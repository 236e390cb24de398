import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { sleep } from "#base/async";
import { ConfigError, durationFlag } from "#base/config";
import { describeError } from "#base/errors";
import { type CniInstallation, conflistFault, installCni } from "#features/cni-installer";
import { coilLogFlags, loggerOf } from "./daemon/index.ts";
import { defineProgram, EXIT } from "./program/index.ts";

const flags = {
  rescanWait: durationFlag(
    "rescan-wait",
    "6s",
    "how long to wait after a change of configurations; a runtime reads them every 5 s",
  ),
  ...coilLogFlags,
};

/** `coil-installer` (docs/spec/pod-network.md#13). */
export const coilInstaller = defineProgram({
  name: "coil-installer",
  summary: "Installs the CNI executable and the network configuration on a node.",
  flags,
  notes: [
    [
      "Environment:",
      "  CNI_CONF_NAME       file name of the configuration (10-coil.conflist)",
      "  CNI_ETC_DIR         directory of configurations (/host/etc/cni/net.d)",
      "  CNI_BIN_DIR         directory of CNI executables (/host/opt/cni/bin)",
      "  COIL_PATH           the executable to install as coil (/usr/local/coil/coil); set and empty: none",
      "  CNI_PLUGINS         paths of further executables, with commas; each is installed under its file name, as /usr/local/coil/vpc-neutron",
      "  CNI_NETCONF         the content of the configuration",
      "  CNI_NETCONF_FILE    a file with the configuration, where CNI_NETCONF is empty; one of these two is required",
      "  CNI_REMOVE_OTHERS   true deletes other configurations; otherwise they are renamed to *.coil-disabled",
    ].join("\n"),
  ],
  run: async ({ values, signal }) => {
    const log = loggerOf("coil-installer", values);
    const installation = installationOf(process.env);
    const conflist = await readConflist(process.env);
    const changes = await installCni(installation, conflist);
    if (!changes.binaryChanged && !changes.configChanged && changes.disabled.length === 0) {
      log.info("nothing to do: the executable and the configuration are installed already");
      return EXIT.ok;
    }
    log.info("installed", { ...changes });
    if (changes.disabledOfSuite.length > 0)
      log.error(
        "put the network of another installation of this suite out of use: if its installer still runs on this node, each undoes what the other one installs; for pods and NICs of VPCs apply deploy/all.yaml, or one release of the chart with both",
        { files: changes.disabledOfSuite },
      );
    // A runtime runs whatever executable is there.
    if (changes.configChanged || changes.disabled.length > 0) await sleep(values.rescanWait, { signal });
    return EXIT.ok;
  },
});

function installationOf(env: NodeJS.ProcessEnv): CniInstallation {
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
async function readConflist(env: NodeJS.ProcessEnv): Promise<string> {
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
