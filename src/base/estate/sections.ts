/** The content of a section. `marks`: files and kernel objects of a program without claims; `more`: a table that belongs to one program alone. */
export type SectionKind = "marks" | "listeners" | "rights" | "objects" | "health" | "exit-codes" | "signals" | "more";

type Row = readonly string[];

/** A table of a program's reference page. */
export interface Section {
  readonly kind: SectionKind;
  readonly title: string;
  readonly head: Row;
  readonly rows: readonly Row[];
}

const table =
  (kind: SectionKind, title: string, ...head: readonly string[]) =>
  (...rows: readonly Row[]): Section => ({ kind, title, head, rows });

/** Makes a table of one program alone; every row has a cell for each column. */
export const section = (title: string, ...head: readonly string[]): ((...rows: readonly Row[]) => Section) =>
  table("more", title, ...head);

/** Files that a program without claims writes or needs. */
export const files = table("marks", "Files", "path", "what");
/** Kernel objects of a program without claims. */
export const kernel = table("marks", "In the kernel", "mark", "what");
/** Served paths and ports. */
export const listeners = table("listeners", "Endpoints", "where", "what");
/** Exit codes. */
export const exitCodes = table("exit-codes", "Exit codes", "code", "when");
/** A program's objects at the API server. */
export const objects = table("objects", "Objects", "object", "what");
/** The rights that the program's account needs. */
export const rights = table("rights", "Rights at the API server", "objects", "verbs");
/** The effects of signals. */
export const signals = table("signals", "Signals", "signal", "what");
/** The parts of the program's health. */
export const healthParts = table("health", "Parts of `/readyz?verbose`", "part", "degraded when");

/** The two ports of a program for metrics and probes. */
export const endpoints = (metricsPort: string, healthPort: string): Section =>
  listeners(
    [`\`${metricsPort}/metrics\``, "metrics in the text format of Prometheus"],
    [`\`${healthPort}/healthz\``, "200 while the process answers"],
    [
      `\`${healthPort}/readyz\``,
      "503 with the missing parts until every part was ready once; later when a part that needs only this node fails, but not when the API server cannot be reached; else 200. `?verbose` lists all parts",
    ],
  );
