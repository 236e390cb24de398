/** The building blocks of the tables of `docs/reference`: what the flags of a program do not say. */

type Row = readonly string[];

/** A table of constants: what the flags do not say. */
export interface Section {
  readonly title: string;
  readonly head: Row;
  readonly rows: readonly Row[];
}

/** A kind of section, to be given its rows; every row has a cell for each column. */
export const section =
  (title: string, ...head: readonly string[]) =>
  (...rows: readonly Row[]): Section => ({ title, head, rows });

/** What is served, where. */
export const listeners = section("Endpoints", "where", "what");
/** What a program exits with. */
export const exitCodes = section("Exit codes", "code", "when");
/** What a program writes or needs on disk. */
export const files = section("Files", "path", "what");
/** What a program makes in the kernel, and by which mark it is known. */
export const kernel = section("In the kernel", "mark", "what");
/** What a program has at the API server. */
export const objects = section("Objects", "object", "what");
/** What its account must be allowed to do. */
export const rights = section("Rights at the API server", "objects", "verbs");
/** What a signal makes it do. */
export const signals = section("Signals", "signal", "what");

/** The two ports of a program for metrics and probes. */
export const endpoints = (metricsPort: string, healthPort: string): Section =>
  listeners(
    [`\`${metricsPort}/metrics\``, "metrics in Prometheus' text format"],
    [`\`${healthPort}/healthz\``, "200 while the process answers"],
    [
      `\`${healthPort}/readyz\``,
      "503 and the parts that are missing until every part was ready once; later when a part that is this node's own fails, but not when the API server goes away; else 200. `?verbose` lists all parts",
    ],
  );
