import { type Estate, endpoints, healthParts, rights } from "#base/estate";
import { ownFolders } from "../../shared/estate/index.ts";

const MAIN_TABLE = 254;

/** All that `coil-router` owns on its node. Pure. */
export function coilRouterEstate({ protocolId }: { readonly protocolId: number }): Estate {
  return {
    kernel: [
      {
        claims: [{ id: "node-routes", kind: "routes", table: MAIN_TABLE, protocol: protocolId }],
        flags: { protocol: "--protocol-id" },
        what: "routes to the other nodes' blocks, via their InternalIP addresses",
      },
    ],
    files: [],
    folders: ownFolders("coil-router"),
    sections: SECTIONS,
  };
}

const SECTIONS: Estate["sections"] = [
  endpoints(":9388", ":9389"),
  rights(["nodes", "list, watch"], ["`addressblocks`", "list, watch"]),
  healthParts(
    ["`watch-addressblocks`, `watch-nodes`", "they cannot be watched; not ready until each was read"],
    ["`routes`", "routes cannot be written; 503"],
  ),
];
