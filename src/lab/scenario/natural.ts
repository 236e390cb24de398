const collator = new Intl.Collator("en", { numeric: true });

/** The order in which people count: node2 before node10. For `sort`. */
export function naturally(a: string, b: string): number {
  return collator.compare(a, b);
}
