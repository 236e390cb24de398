import { type Estate, endpoints, objects } from "#base/estate";
import { NIC_ESTATE, nicAgentState } from "#features/nic-cni";
import { servedPath } from "../../shared/cni-plugin/index.ts";
import { ownFolders } from "../../shared/estate/index.ts";

/** All that `nic-agent` owns on its node. Pure. */
export function nicAgentEstate({ socket, stateDir }: { readonly socket: string; readonly stateDir: string }): Estate {
  const { claims, journal, lock } = nicAgentState(stateDir);
  return {
    kernel: NIC_ESTATE,
    files: [
      { path: socket, what: "its socket (`--socket`)" },
      { path: servedPath(socket), what: "when it could serve the last time, for STATUS" },
      { path: claims, what: "the last known claims (`--state-dir`)" },
      { path: journal, what: "the journal of NICs in sandboxes (`--state-dir`)" },
      { path: lock, what: "locked while a nic-agent runs; a second one waits for it" },
    ],
    folders: ownFolders("nic-agent"),
    sections: SECTIONS,
  };
}

const SECTIONS: Estate["sections"] = [
  endpoints(":9394", ":9395"),
  objects(
    ["conditions `Plugged` and `Unplugged` of NicClaims, manager `nic-agent`", "what the node has of a pod's NICs"],
    [
      "ports of Open vSwitch whose interface has the `iface-id` and the `vm-id` of a NIC",
      "the NIC on the integration bridge; in the database of the node's switch",
    ],
  ),
];
