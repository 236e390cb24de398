/** The places of `isthmus uninstall` in a folder, with the programs of a node, for tests. */

import { IpAddress } from "#base/ip";
import { PROGRAMS } from "../../src/programs/programs.ts";
import type { Program } from "../../src/programs/shared/program/index.ts";
import type { NodePlaces } from "../../src/programs/tools/uninstall/places.ts";
import { type GivenFlags, readOwned } from "../../src/programs/tools/uninstall/read-owned.ts";

/** The programs that run on nodes. */
export function nodePrograms(): Promise<readonly Program[]> {
  const listed = Object.entries(PROGRAMS).filter(
    ([name, { onNode }]) => onNode === true || name === "nic-agent" || name === "node",
  );
  return Promise.all(listed.map(([, { load }]) => load()));
}

/** `given`: flags of programs, as an operator gives them to `isthmus uninstall`. */
export function placesOf(root: string, programs: readonly Program[], given: GivenFlags = {}): NodePlaces {
  return {
    ...{ root, cniEtcDir: "/etc/cni/net.d", cniBinDir: "/opt/cni/bin" },
    ...readOwned(programs, given, { root }),
    bindAddress: [IpAddress.parse("10.255.255.1")],
    nodePrograms: new Set(programs.map(({ name }) => name)),
  };
}
