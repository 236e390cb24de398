import type { TaskGroup } from "#base/async";

/** One activity of a daemon. It is made by a function of what it needs, so that it runs in a test without a process. */
export interface Part {
  /** Unique in the daemon. */
  readonly name: string;
  /** Runs until the signal aborts, or its work is done. A rejection ends the daemon, unless the signal has aborted. */
  readonly run: (options: { readonly signal: AbortSignal }) => Promise<void>;
}

/** Starts the parts in the order of the list. Throws an error, which is a bug, if two have one name. */
export function startParts(parts: readonly Part[], group: Pick<TaskGroup, "spawn">): void {
  const names = new Set<string>();
  for (const { name } of parts) {
    if (names.has(name)) throw new Error(`two parts have the name ${name}`);
    names.add(name);
  }
  for (const { run } of parts) group.spawn((signal) => run({ signal }));
}
