type Environment = Readonly<Record<string, string | undefined>>;

/** The launcher keeps a variable that Node must not see, such as NODE_OPTIONS, under its name behind this. */
const KEPT = "ISTHMUS_KEPT_";
/** The names that the launcher has added, with spaces between them. */
const ADDED = "ISTHMUS_ADDED";
/** The variables by which the launcher informs the program itself. */
const OWN: ReadonlySet<string> = new Set(["ISTHMUS_CALLED_AS", ADDED]);

/** Pure: a variable that the launcher has taken from the environment; `undefined` if it was not set. */
export function keptVariable(env: Environment, name: string): string | undefined {
  return env[`${KEPT}${name}`];
}

/** Pure: the environment as it was before the launcher. Without a launcher it is the same. */
export function callersEnvironment(env: Environment): Record<string, string> {
  const added = new Set((env[ADDED] ?? "").split(" "));
  const kept: [string, string][] = [];
  const rest: [string, string][] = [];
  for (const [name, value] of Object.entries(env)) {
    if (value === undefined || OWN.has(name) || added.has(name)) continue;
    if (name.startsWith(KEPT)) kept.push([name.slice(KEPT.length), value]);
    else rest.push([name, value]);
  }
  return Object.fromEntries([...rest, ...kept]);
}
