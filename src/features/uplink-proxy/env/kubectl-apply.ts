import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { AbortOptions } from "#base/async";
import { callersEnvironment } from "#base/environment";
import { ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import { OFF_SWITCH, readOffSwitch } from "./off-switch.ts";
import { PROXY_URL, proxyEnvironment } from "./proxy-environment.ts";

const run = promisify(execFile);
const DEFAULT_TIMEOUT_MS = 5 * 60_000;
/** Maximum number of bytes of each output stream of kubectl that are kept for the error. */
const MAX_OUTPUT_BYTES = 1 << 20;

export type KubectlApplyErrorCode = "failed" | "timeout" | "cannot-run";

/** The manifest was not applied, or only a part of it. */
export class KubectlApplyError extends ExpectedError<KubectlApplyErrorCode> {
  override readonly name = "KubectlApplyError";
}

export interface KubectlApplyOptions extends AbortOptions {
  readonly log: Pick<Logger, "info" | "warn">;
  /** Default {@link OFF_SWITCH}. */
  readonly flag?: string;
  /** Default `kubectl` on the PATH. */
  readonly kubectl?: string;
  /** Default {@link PROXY_URL}. */
  readonly proxyURL?: string;
  /** Default 5 minutes. */
  readonly timeoutMs?: number;
  /** The parent's environment; default that with which this program was called. */
  readonly env?: NodeJS.ProcessEnv;
}

/**
 * `kubectl apply -f PATH`: manifests at `https://` addresses are fetched through the proxy unless the off-switch is on; files
 * and `http://` are not (docs/spec/uplink-proxy.md#11.4). Resolves with kubectl's output. Arguments are a vector; no shell is involved.
 * Rejects with
 * {@link KubectlApplyError}, which names path, exit code and kubectl's output.
 */
export async function kubectlApply(path: string, options: KubectlApplyOptions): Promise<string> {
  const env = { ...(options.env ?? callersEnvironment(process.env)), ...(await addedEnvironment(path, options)) };
  const { kubectl = "kubectl", timeoutMs = DEFAULT_TIMEOUT_MS, signal } = options;
  try {
    const { stdout } = await run(kubectl, ["apply", "-f", path], {
      env,
      timeout: timeoutMs,
      killSignal: "SIGKILL",
      maxBuffer: MAX_OUTPUT_BYTES,
      ...(signal === undefined ? {} : { signal }),
    });
    return stdout;
  } catch (error) {
    signal?.throwIfAborted();
    throw applyError(path, error as ExecError, timeoutMs);
  }
}

async function addedEnvironment(path: string, options: KubectlApplyOptions): Promise<NodeJS.ProcessEnv> {
  const { log, flag = OFF_SWITCH, proxyURL = PROXY_URL } = options;
  if (path.startsWith("http://")) {
    log.info(`KubectlApply: plain HTTP is not routed through mgmtproxy, fetching direct: ${path}`);
    return {};
  }
  if (!path.startsWith("https://")) return {};
  if (!(await readOffSwitch(flag, { log })).isEnabled) {
    log.info(`KubectlApply: mgmtproxy disabled (${flag} present), fetching direct: ${path}`);
    return {};
  }
  log.info(`KubectlApply: routing through mgmtproxy (${proxyURL}): ${path}`);
  return { ...proxyEnvironment({ proxyURL }) };
}

type ExecError = Error & {
  readonly code?: number | string | null;
  readonly killed?: boolean;
  readonly stdout?: string;
  readonly stderr?: string;
};

function applyError(path: string, error: ExecError, timeoutMs: number): KubectlApplyError {
  const said = `stdout: ${JSON.stringify(error.stdout ?? "")}, stderr: ${JSON.stringify(error.stderr ?? "")}`;
  if (typeof error.code === "string") {
    return new KubectlApplyError("cannot-run", `cannot apply ${path}: cannot run kubectl: ${error.message}`, {
      cause: error,
    });
  }
  if (error.killed === true) {
    return new KubectlApplyError("timeout", `cannot apply ${path}: kubectl took longer than ${timeoutMs} ms; ${said}`, {
      cause: error,
    });
  }
  return new KubectlApplyError("failed", `cannot apply ${path}: kubectl ended with code ${error.code}; ${said}`, {
    cause: error,
  });
}
