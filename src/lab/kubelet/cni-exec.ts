import { spawn } from "node:child_process";
import { ExpectedError } from "#base/errors";
import { inNetNs, type NetNs } from "#kernel/netns";

/** The plugin failed, or could not be run. */
export class CniCallError extends ExpectedError<"cni-failed"> {
  override readonly name = "CniCallError";
  /** The CNI error code, if the plugin returned one. */
  readonly cniCode: number | undefined;

  constructor(message: string, cniCode?: number) {
    super("cni-failed", message);
    this.cniCode = cniCode;
  }
}

/** A plugin of a lab's network. */
export interface CniPluginSettings {
  /** Path of the executable. */
  readonly executable: string;
  /** The plugin's configuration, without prevResult. */
  readonly config: object;
}

/** One call of the plugin. */
export interface CniCallRequest {
  readonly command: "ADD" | "DEL" | "CHECK";
  readonly containerId: string;
  readonly netnsPath: string;
  readonly ifname: string;
  readonly args: Readonly<Record<string, string>>;
  /** The annotations of the pod. A plugin whose configuration declares the capability gets them. */
  readonly annotations?: Readonly<Record<string, string>> | undefined;
  readonly prevResult?: object | undefined;
}

export type CniRunner = (request: CniCallRequest) => Promise<Record<string, unknown> | undefined>;

/** The capability by which runtimes pass all annotations of a pod. */
const ANNOTATIONS = "io.kubernetes.cri.pod-annotations";
/** Longer than the plugin's own deadline. A plugin that hangs is killed. */
const TIMEOUT_MS = 90_000;
const MAX_OUTPUT_BYTES = 1024 * 1024;

/** Runs the plugin in the node's namespace, as a runtime on that node would. Rejects with {@link CniCallError}. */
export function execCni(node: NetNs, plugin: CniPluginSettings): CniRunner {
  return async (request) => {
    const env = {
      PATH: process.env["PATH"] ?? "/usr/sbin:/usr/bin:/sbin:/bin",
      CNI_COMMAND: request.command,
      CNI_CONTAINERID: request.containerId,
      CNI_NETNS: request.netnsPath,
      CNI_IFNAME: request.ifname,
      CNI_PATH: plugin.executable.slice(0, plugin.executable.lastIndexOf("/")),
      CNI_ARGS: Object.entries({ IgnoreUnknown: "1", ...request.args })
        .map(([key, value]) => `${key}=${value}`)
        .join(";"),
    };
    const stdin = JSON.stringify({
      ...plugin.config,
      ...(wantsAnnotations(plugin) ? { runtimeConfig: { [ANNOTATIONS]: request.annotations ?? {} } } : {}),
      ...(request.prevResult === undefined ? {} : { prevResult: request.prevResult }),
    });
    // A child made while this thread is in the node's namespace stays in it.
    const child = inNetNs(node, () =>
      spawn(plugin.executable, { env, stdio: "pipe", timeout: TIMEOUT_MS, killSignal: "SIGKILL" }),
    );
    const { code, stdout, stderr } = await finish(child, stdin);
    const answer = parseAnswer(stdout);
    if (code === 0) return answer;
    const { msg, details, code: cniCode } = answer ?? {};
    const said = [msg, details].filter((part) => typeof part === "string" && part !== "").join(": ");
    const text = said === "" ? `ended with code ${code}: ${stderr.trim() || "no message"}` : said;
    throw new CniCallError(`CNI ${request.command}: ${text}`, typeof cniCode === "number" ? cniCode : undefined);
  };
}

function wantsAnnotations({ config }: CniPluginSettings): boolean {
  const { capabilities } = config as { readonly capabilities?: Readonly<Record<string, unknown>> };
  return capabilities?.[ANNOTATIONS] === true;
}

/**
 * Runs a chain as a runtime does: ADD and CHECK in its order, each plugin with the result of the previous plugin; DEL in reverse order with
 * the result of the ADD. Results are kept until their DEL, at most one for each sandbox.
 */
export function execChain(node: NetNs, plugins: readonly CniPluginSettings[]): CniRunner {
  const runners = plugins.map((plugin) => execCni(node, plugin));
  const results = new Map<string, Record<string, unknown>>();
  return async (request) => {
    const kept = results.get(request.containerId);
    if (request.command === "ADD") {
      let prevResult: Record<string, unknown> | undefined;
      for (const run of runners) prevResult = await run({ ...request, prevResult });
      if (prevResult !== undefined) results.set(request.containerId, prevResult);
      return prevResult;
    }
    const order = request.command === "DEL" ? runners.toReversed() : runners;
    for (const run of order) await run({ ...request, prevResult: kept });
    if (request.command === "DEL") results.delete(request.containerId);
    return undefined;
  };
}

function finish(
  child: ReturnType<typeof spawn>,
  stdin: string,
): Promise<{ readonly code: number | null; readonly stdout: string; readonly stderr: string }> {
  return new Promise((resolve, reject) => {
    const output = { stdout: "", stderr: "" };
    for (const name of ["stdout", "stderr"] as const) {
      child[name]?.setEncoding("utf8").on("data", (text: string) => {
        if (output[name].length < MAX_OUTPUT_BYTES) output[name] += text;
      });
    }
    child.once("error", (error) => reject(new CniCallError(`cannot run the CNI plugin: ${error.message}`)));
    child.once("close", (code) => resolve({ code, ...output }));
    // A plugin that ends without reading closes the pipe; its exit code is more useful.
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(stdin);
  });
}

function parseAnswer(stdout: string): Record<string, unknown> | undefined {
  if (stdout.trim() === "") return undefined;
  try {
    return JSON.parse(stdout) as Record<string, unknown>;
  } catch (error) {
    throw new CniCallError(`the CNI plugin printed no JSON: ${stdout.slice(0, 200)} (${String(error)})`);
  }
}
