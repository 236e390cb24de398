import { ConfigError, choiceFlag, type FlagValues, integerFlag, repeatedFlag, stringFlag } from "#base/config";
import { parseAllowed } from "#features/nic-agent";
import { DEFAULT_VPC_SOCKET } from "../../shared/cni-plugin/index.ts";
import { endpointFlags, kubeFlags, logFlags } from "../../shared/daemon/index.ts";
import { STATE_FOLDER } from "../../shared/estate/index.ts";
import { recordFlag } from "../../shared/pass-record/index.ts";

/** The flags of `nic-agent`. */
export const nicAgentFlags = {
  ...endpointFlags(":9394", ":9395"),
  socket: stringFlag(
    "socket",
    DEFAULT_VPC_SOCKET,
    "UNIX socket that the CNI executables vpc-neutron and vpc-alcor call",
    "PATH",
  ),
  stateDir: stringFlag("state-dir", STATE_FOLDER, "folder of the claims and the journal", "PATH"),
  ovsdb: stringFlag(
    "ovsdb",
    "/var/run/openvswitch/db.sock",
    "UNIX socket of Open vSwitch's database; a network may name another that is allowed",
    "PATH",
  ),
  integrationBridge: stringFlag("integration-bridge", "br-int", "bridge of ports that do not say theirs", "NAME"),
  plugMode: choiceFlag(
    "plug-mode",
    ["auto", "hybrid", "direct"],
    "auto",
    "hybrid: a Linux bridge before the integration bridge; direct: none; auto: as the port's binding says, else hybrid",
  ),
  vmOwnerUid: integerFlag("vm-owner-uid", 0, "user who may open the TAP devices of virtual machines", {
    min: 0,
    max: 0xffff_fffe,
  }),
  nsPrefix: stringFlag("ns-prefix", "vpc-ns", "vpc-alcor: beginning of the names of VPCs' namespaces", "TEXT"),
  allowConfiguration: repeatedFlag(
    "allow-configuration",
    (text) => {
      const allowed = parseAllowed(text);
      if (allowed !== undefined) return allowed;
      const keys = "ovsdb, integrationBridge, plugMode, vmOwnerUid or nsPrefix";
      throw new ConfigError("invalid-value", [`"${text}" is not KEY=VALUE with the key ${keys}`]);
    },
    "a further value that the configuration of a network may have, such as integrationBridge=br-second; others than this agent's own are refused",
    "KEY=VALUE",
  ),
  ...recordFlag,
  ...kubeFlags,
  ...logFlags,
};

/** Values of {@link nicAgentFlags}. */
export type NicAgentValues = FlagValues<typeof nicAgentFlags>;
