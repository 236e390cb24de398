/** Pure: RFC 3339 to milliseconds since the epoch; `undefined` for anything else. */
export function parseInstant(text: string): number | undefined {
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/.test(text)) return undefined;
  // Beyond milliseconds nothing is kept, and Date.parse reads no more than it knows.
  const time = Date.parse(text.replace(/\.(\d{1,3})\d*/, ".$1"));
  return Number.isNaN(time) ? undefined : time;
}
