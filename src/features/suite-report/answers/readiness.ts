/** One part of a program in the answer of `/readyz?verbose`. */
export interface ReadyPart {
  readonly name: string;
  readonly ok: boolean;
  /** The status and its reason: `degraded: no API server`. */
  readonly text: string;
}

/** The maximum number of parts that are read, and of characters of each text. */
const MAX_PARTS = 100;
const MAX_TEXT = 300;

/**
 * The parts of an answer of `/readyz?verbose`, whose lines are `[+]NAME STATUS REASON` and `[-]NAME STATUS REASON` (`base/health`), also those of
 * Kubernetes' programs. Other lines are left out. Pure; throws nothing.
 */
export function parseReadiness(text: string): readonly ReadyPart[] {
  const parts: ReadyPart[] = [];
  for (const line of text.split("\n")) {
    const [, sign, name, rest = ""] = /^\[([+-])\](\S+)(.*)$/s.exec(line) ?? [];
    if (name === undefined) continue;
    if (parts.length >= MAX_PARTS) break;
    const words = rest.trim();
    const [status = ""] = /^\S*/.exec(words) ?? [];
    const reason = words.slice(status.length).trimStart();
    const text = [status, reason].filter((part) => part !== "").join(": ");
    parts.push({ name, ok: sign === "+", text: text.slice(0, MAX_TEXT) });
  }
  return parts;
}

/**
 * True for a body that the health endpoint of a program of the suite gives: its last line is `ok`, `not ready`, or of a part; of the tunnel's programs, which
 * have Konnectivity's words, also `check passed`. Pure.
 */
export function isOurReadiness(text: string): boolean {
  return /(^|\n)(ok|not ready|(\S+ )?check passed|\[[+-]\]\S.*)\n?$/.test(text);
}
