import { existsSync } from "node:fs";
import { type AbortOptions, untilAborted } from "#base/async";
import type { Clock } from "#base/clock";
import type { Health } from "#base/health";
import type { Logger } from "#base/log";
import { CniKeeper } from "#features/cni-installer";
import type { EventRecorder } from "#kube/events";
import { hasConflist, installationOf, readConflist } from "./environment.ts";

/** Reason of the Node's event when files are left missing. */
export const CNI_FILES_REMOVED = "CniFilesRemoved";

/** The note about these variables in the help of a program. */
export const KEPT_FILES_NOTE =
  "With CNI_NETCONF or CNI_NETCONF_FILE, and the other CNI_ variables and COIL_PATH of coil-installer, it keeps the files that these install: files that another program removes are put back, at most three times within ten minutes, and it is not ready while one is missing.";

/**
 * Keeps the CNI files that the environment names, until the signal aborts. Where it names none, or a folder is not there, as in a container that does not mount it,
 * that is logged once, and nothing is watched. Rejects with `ConfigError` for wrong variables.
 */
export async function keepCniFiles(
  parts: {
    readonly env: NodeJS.ProcessEnv;
    readonly nodeName: string;
    readonly events: Pick<EventRecorder, "record">;
    readonly health: Health;
    readonly log: Logger;
    readonly clock: Clock;
  },
  { signal }: AbortOptions & { readonly signal: AbortSignal },
): Promise<void> {
  const { env, nodeName, events, health, log, clock } = parts;
  const unwatched = async (why: string): Promise<void> => {
    log.info("the CNI configuration and executables are not watched: a removal by another program is not noticed", {
      why,
    });
    await untilAborted(signal);
  };
  if (!hasConflist(env)) return await unwatched("neither CNI_NETCONF nor CNI_NETCONF_FILE is set");
  const installation = installationOf(env);
  const conflist = await readConflist(env);
  const absent = [installation.etcDir, installation.binDir].find((folder) => !existsSync(folder));
  if (absent !== undefined)
    return await unwatched(`${absent} is not there; mount the node's folder, or set CNI_ETC_DIR and CNI_BIN_DIR`);
  const onLeft = (why: string): void => {
    const regarding = { apiVersion: "v1", kind: "Node", name: nodeName, uid: nodeName };
    events.record({ regarding, type: "Warning", reason: CNI_FILES_REMOVED, note: `Pods cannot start here: ${why}.` });
  };
  const keeper = new CniKeeper({ installation, onLeft, log, clock }, conflist);
  await keeper.run({ health: health.part("cni-files", { needed: "always" }), signal });
}
