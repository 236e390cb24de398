/** Explains why the program cannot be loaded and what to do. Imports nothing, because other modules may not load. */

/** The Node that the bundle is built for. */
export const NODE_MAJOR = 24;
export const EXIT_FAILED = 1;

/** The fault of a version of Node such as `20.19.0`; `undefined` for a version that can be used. */
export function nodeFault(version: string, wantedMajor: number): string | undefined {
  if (Number(version.split(".")[0]) >= wantedMajor) return undefined;
  return `this is Node ${version}; Isthmus needs Node ${wantedMajor} or later: install it, or set ISTHMUS_NODE to its path`;
}

/** The cause of a failure to load, and its remedy; `undefined` for a failure that users cannot correct. */
export function explainLoadFailure(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const { message } = error;
  const code = (error as { readonly code?: unknown }).code;
  const glibc = /version `(GLIBC_[\d.]+)' not found \(required by ([^()]+)\)/.exec(message);
  if (glibc !== null) {
    return `this system's C library is older than the one that Isthmus is built for: ${glibc[2]} needs ${glibc[1]}; use Debian 12 or later`;
  }
  if (code === "ERR_MODULE_NOT_FOUND" || code === "MODULE_NOT_FOUND") {
    const first = message.split("\n", 1)[0] ?? message;
    return `a part of Isthmus is missing: ${first}; copy the whole folder dist, node_modules in it included`;
  }
  if (code === "ERR_DLOPEN_FAILED") return `a native library cannot be loaded: ${message.split("\n", 1)[0]}`;
  return undefined;
}
