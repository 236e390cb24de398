/** Converts an RFC 3339 text to milliseconds since the epoch; returns `undefined` for any other text. Pure. */
export function parseInstant(text: string): number | undefined {
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/.test(text)) return undefined;
  // Digits after the milliseconds are dropped before Date.parse reads the text.
  const time = Date.parse(text.replace(/\.(\d{1,3})\d*/, ".$1"));
  return Number.isNaN(time) ? undefined : time;
}
