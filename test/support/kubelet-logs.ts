/**
 * Logs of the suite's containers on a cluster of {@link Kubelets}: what they say above the level of information.
 *
 * Owns: nothing. Does not know: the programs.
 *
 * ```ts
 * assert.deepEqual(await complaints(cluster), []);
 * ```
 */
import { NODES } from "#test/kubelet-node";
import type { Kubelets } from "#test/kubelets";

/**
 * Lines of warnings and errors, and those that tell of a refused request or a bug at whatever level, of all containers of all pods that are
 * there, those of former runs too: `POD/CONTAINER: LINE`.
 */
export async function complaints(cluster: Kubelets): Promise<readonly string[]> {
  const found: string[] = [];
  let read = 0;
  for (const name of NODES) {
    const text = await cluster.node(name).run("grep", "-r", "", "/var/log/pods");
    for (const line of text.split("\n")) {
      // `/var/log/pods/NAMESPACE_POD_UID/CONTAINER/RUN.log:TIME STREAM TAG LINE`
      const [, pod, container, said = ""] =
        /^\/var\/log\/pods\/([^/]+)_[^/]+\/([^/]+)\/[^:]+:\S+ \S+ \S (.*)$/.exec(line) ?? [];
      const level = levelOf(said);
      if (level === undefined) continue;
      read += 1;
      if (level === "warn" || level === "error" || /forbidden|because of a bug/i.test(said))
        found.push(`${pod}/${container}: ${said}`);
    }
  }
  if (read === 0) throw new Error("no container of the suite has logged anything in /var/log/pods");
  return found;
}

/** The level of a line of the suite's logs; undefined of any other line. */
function levelOf(line: string): unknown {
  if (!line.startsWith("{")) return undefined;
  try {
    const { level, logger } = JSON.parse(line) as { readonly level?: unknown; readonly logger?: unknown };
    return logger === undefined ? undefined : level;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}
