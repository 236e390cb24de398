import { type FSWatcher, watch } from "node:fs";
import type { DeviceWatch } from "#features/nic-cni";
import type { Monitors } from "#kernel/monitor";

/**
 * Hints about devices of Alcor's agent, from the kernel's events and the folder of namespaces. A hint may be lost: a folder that does not exist
 * cannot be watched, and who waits looks again now and then.
 */
export function watchDevices(monitors: Monitors): DeviceWatch {
  return {
    links: (netns, onChange) => monitors.watch(netns, { links: true }, onChange),
    folder: (path, onChange) => {
      const watcher = openWatcher(path, onChange);
      return { [Symbol.dispose]: () => watcher?.close() };
    },
  };
}

function openWatcher(path: string, onChange: () => void): FSWatcher | undefined {
  try {
    return watch(path, { persistent: false }, onChange).on("error", () => undefined);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === undefined) throw error;
    return undefined;
  }
}
