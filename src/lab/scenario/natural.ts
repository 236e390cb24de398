const collator = new Intl.Collator("en", { numeric: true });

/** Natural order, for `sort`: node2 before node10. */
export function naturally(a: string, b: string): number {
  return collator.compare(a, b);
}
