import { writeFileSync } from "node:fs";
import type { Logger } from "#base/log";
import { openNetNs } from "#kernel/netns";
import { listenTcp } from "#kernel/socket";
import { startApiServer } from "#lab/api-server";
import type { Topology } from "#lab/topology";
import type { LabPaths } from "./state.ts";

/** Where nodes reach the API server, on every gateway of the fabric. */
const PORT = 6443;

/** The lab's API server, however it is had. */
export interface ControlPlane extends AsyncDisposable {
  readonly embedded: boolean;
  readonly description: string;
}

/** Starts the embedded API server, or leads to another one; writes both kubeconfigs. */
export async function openControlPlane(
  deps: { readonly log: Logger },
  options: { readonly topology: Topology; readonly paths: LabPaths; readonly kubeconfig: string | undefined },
): Promise<ControlPlane> {
  return openEmbedded(deps, options);
}
