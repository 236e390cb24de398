/** The name, without its ending, of the file of the build that has one program alone. */
export function ownFile(program: string): string {
  return `program-${program}`;
}

/**
 * The file of the called program, relative to that of the start; `undefined` for a program that is in the bundle of all. `programs` are the names of
 * those that have a file, separated by blanks; the build gives them, and sources that run as they are have none. `calledAs` is the name of
 * the link, and `word` the first word of the command line, which counts when that name is not a program's.
 */
export function ownFileOf(
  programs: string | undefined,
  calledAs: string,
  word: string | undefined,
): string | undefined {
  const names = (programs ?? "").split(" ");
  const name = [calledAs, word ?? ""].find((text) => text !== "" && names.includes(text));
  return name === undefined ? undefined : `./${ownFile(name)}.cjs`;
}
