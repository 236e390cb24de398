/**
 * Imported first by the tools that people start: ends them in an older Node, in which some would do nothing and exit with 0
 * (`import.meta.main` is new in 24.2). Node below 22.18 cannot read TypeScript and says so itself.
 */
const OLDEST = [24, 2] as const;

/** Pure: what is wrong with this version of Node, such as `22.20.0`; `undefined` if nothing is. */
export function faultOfNode(version: string): string | undefined {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1])) return undefined;
  return `isthmus: this is Node ${version}, and the tools need ${OLDEST.join(".")} or later: use ./run (such as ./run ok), which has its own`;
}

const fault = faultOfNode(process.versions.node);
if (fault !== undefined) {
  console.error(fault);
  process.exit(1);
}
