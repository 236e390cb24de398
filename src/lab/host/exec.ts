import { spawn } from "node:child_process";
import { inNetNs, openNetNs } from "#kernel/netns";

/** The namespace of a node, by its path. */
export function attachedNode(netns: string): string {
  return `/run/netns/${netns}`;
}

/** Runs a command in a namespace with the terminal of this process; resolves with its exit code, 127 when it cannot be run. */
export async function joinNetns(path: string, argv: readonly string[], signal: AbortSignal): Promise<number> {
  using netns = openNetNs({ path });
  const [file = "", ...args] = argv;
  const child = inNetNs(netns, () => spawn(file, args, { stdio: "inherit" }));
  const stop = (): void => void child.kill("SIGTERM");
  signal.addEventListener("abort", stop, { once: true });
  return new Promise((resolve) => {
    child.once("error", (error) => {
      process.stderr.write(`isthmus lab exec: cannot run ${file}: ${error.message}\n`);
      resolve(127);
    });
    child.once("exit", (code, by) => resolve(code ?? (by === null ? 1 : 128)));
  });
}
