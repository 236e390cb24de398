/** The tables of `docs/reference` that do not follow from a program's flags and metrics. */

type Row = readonly string[];

/** A table of constants. */
export interface Section {
  readonly title: string;
  readonly head: Row;
  readonly rows: readonly Row[];
}

/** A kind of section; its rows are added later; every row has a cell for each column. */
export const section =
  (title: string, ...head: readonly string[]) =>
  (...rows: readonly Row[]): Section => ({ title, head, rows });

/** Served paths and ports. */
export const listeners = section("Endpoints", "where", "what");
/** Exit codes. */
export const exitCodes = section("Exit codes", "code", "when");
/** Files that a program writes or needs. */
export const files = section("Files", "path", "what");
/** A program's objects in the kernel, and their marks. */
export const kernel = section("In the kernel", "mark", "what");
/** A program's objects at the API server. */
export const objects = section("Objects", "object", "what");
/** The rights that its account needs. */
export const rights = section("Rights at the API server", "objects", "verbs");
/** The effects of signals. */
export const signals = section("Signals", "signal", "what");

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
