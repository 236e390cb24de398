import { sleep } from "#base/async";
import { durationFlag } from "#base/config";
import { installCni } from "#features/cni-installer";
import { installationOf, readConflist } from "../../shared/cni-files/index.ts";
import { coilLogFlags, loggerOf } from "../../shared/daemon/index.ts";
import { defineProgram, EXIT } from "../../shared/program/index.ts";

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
      "  CNI_PLUGINS         paths of further executables, with commas, as /usr/local/coil/vpc-neutron;",
      "                      each is installed under its file name",
      "  CNI_NETCONF         the content of the configuration",
      "  CNI_NETCONF_FILE    a file with the configuration, where CNI_NETCONF is empty; one of these two is",
      "                      required",
      "  CNI_REMOVE_OTHERS   true deletes other configurations; otherwise they are renamed to",
      "                      *.coil-disabled",
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
