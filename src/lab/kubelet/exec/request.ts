import { ExecError } from "./channels.ts";

/** Maximum number of words of a command line. */
const MAX_WORDS = 1000;

/** A request to run a command (kubelet pkg/kubelet/server). */
export interface ExecRequest {
  readonly namespace: string;
  readonly pod: string;
  readonly container: string;
  readonly command: readonly string[];
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
}

/** Reads `/exec/NAMESPACE/POD/CONTAINER?command=...&input=1&output=1&error=1&tty=1`. Throws {@link ExecError}. */
export function parseExecRequest(target: string): ExecRequest {
  const url = URL.parse(target, "http://kubelet");
  const parts = url?.pathname.split("/").slice(1) ?? [];
  const [first, ...names] = parts;
  if (url === null || first !== "exec" || names.length !== 3) {
    throw new ExecError("not-found", "only /exec/NAMESPACE/POD/CONTAINER is served");
  }
  const [namespace = "", pod = "", container = ""] = names.map(decoded);
  const flag = (name: string): boolean => ["1", "true"].includes(url.searchParams.get(name) ?? "");
  const command = url.searchParams.getAll("command");
  if (command.length === 0 || command[0] === "") throw new ExecError("bad-request", "you must specify a command");
  if (command.length > MAX_WORDS) throw new ExecError("bad-request", `the command has more than ${MAX_WORDS} words`);
  if (command.some((word) => word.includes("\0")))
    throw new ExecError("bad-request", "the command contains a NUL byte");
  const tty = flag("tty");
  const request = { namespace, pod, container, command, tty, stdin: flag("input"), stdout: flag("output") };
  // A terminal has one stream for both.
  const stderr = flag("error") && !tty;
  if (!(request.stdin || request.stdout || stderr)) {
    throw new ExecError("bad-request", "you must specify at least one of stdin, stdout, stderr");
  }
  return { ...request, stderr };
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch (error) {
    if (error instanceof URIError) throw new ExecError("not-found", `${JSON.stringify(segment)} is not a name`);
    throw error;
  }
}
