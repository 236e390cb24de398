import type { Health } from "./health.ts";

/** The text of `/readyz`. */
export interface Readiness {
  readonly isReady: boolean;
  /** A line for each part that is not ready (for each part, when verbose), and the sum of them. */
  readonly text: string;
}

/** Says whether all parts are ready, and which are not. */
export function readiness(health: Health, { isVerbose }: { readonly isVerbose: boolean }): Readiness {
  const { unready } = health;
  const shown = isVerbose ? health.parts : unready;
  const lines = shown.map(({ name, status, reason, progress }) => {
    const done = isVerbose && status === "ok" && progress !== undefined ? ` (${progress})` : "";
    return `[${status === "ok" ? "+" : "-"}]${name} ${status} ${reason}${done}`;
  });
  const isReady = unready.length === 0;
  return { isReady, text: `${[...lines, isReady ? "ok" : "not ready"].join("\n")}\n` };
}
