import type { Counter } from "prom-client";

/** Labels, and all values that each label may have. With a record, TypeScript checks its keys against a union of texts. */
export type LabelValues<L extends string> = Readonly<Record<L, readonly string[] | Readonly<Record<string, unknown>>>>;

/**
 * Creates the series of a counter at 0 for every value of its labels: if a series began at 1, `rate()` would miss this first count.
 */
export function startAtZero<L extends string>(counter: Counter<L>, values: LabelValues<L>): void {
  let all: Partial<Record<L, string>>[] = [{}];
  for (const [label, known] of Object.entries(values) as [L, LabelValues<L>[L]][]) {
    const texts = Array.isArray(known) ? (known as readonly string[]) : Object.keys(known);
    all = all.flatMap((labels) => texts.map((text) => ({ ...labels, [label]: text })));
  }
  for (const labels of all) counter.inc(labels, 0);
}
