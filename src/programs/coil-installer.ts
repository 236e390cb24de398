import type { Stats } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { sleep } from "#base/async";
import { ConfigError, durationFlag } from "#base/config";
import { describeError, ExpectedError } from "#base/errors";
import { FileError, replaceFile } from "#base/file";
import { logFlags, loggerOf } from "./daemon/index.ts";
import { defineProgram, EXIT } from "./program/index.ts";

/** A file cannot be put in place. Files that were there are whole. */
class InstallError extends ExpectedError<"cannot-install"> {
  override readonly name = "InstallError";
}

const flags = {
  rescanWait: durationFlag(
    "rescan-wait",
    "6s",
    "how long to wait after a change; runtimes look for networks every 5 s",
  ),
  ...logFlags,
};

interface Settings {
  readonly confName: string;
  readonly etcDir: string;
  readonly binDir: string;
  readonly binary: string;
  readonly removeOthers: boolean;
}

/** `coil-installer` (docs/spec/pod-network.md#13). */
export const coilInstaller = defineProgram({
  name: "coil-installer",
  summary: "Puts the CNI executable and the network configuration in place on a node.",
  flags,
  notes: [
    [
      "Environment:",
      "  CNI_CONF_NAME       file name of the configuration (10-coil.conflist)",
      "  CNI_ETC_DIR         directory of configurations (/host/etc/cni/net.d)",
      "  CNI_BIN_DIR         directory of CNI executables (/host/opt/cni/bin)",
      "  COIL_PATH           the executable to install (/usr/local/coil/coil)",
      "  CNI_NETCONF         the configuration itself",
      "  CNI_NETCONF_FILE    a file with the configuration, where CNI_NETCONF is empty; one of both is required",
      "  CNI_REMOVE_OTHERS   true deletes other configurations; otherwise they are renamed to *.coil-disabled",
    ].join("\n"),
  ],
  run: async ({ values, signal }) => {
    const log = loggerOf("coil-installer", values);
    const settings = settingsOf(process.env);
    const conflist = await readConflist(process.env);
    try {
      await makeFolder(settings.etcDir);
      await makeFolder(settings.binDir);
      // The executable comes first: a configuration must never name one that is not there.
      const binaryChanged = await installBinary(settings);
      const configChanged = await installConfig(settings, conflist);
      const others = await disableOthers(settings);
      if (!binaryChanged && !configChanged && others.length === 0) {
        log.info("everything is in place");
        return EXIT.ok;
      }
      log.info("installed", { binaryChanged, configChanged, disabled: others });
    } catch (error) {
      if (!(error instanceof FileError || (error instanceof Error && "syscall" in error))) throw error;
      throw new InstallError(
        "cannot-install",
        `cannot install into ${settings.etcDir} and ${settings.binDir}: ${error.message}`,
        { cause: error },
      );
    }
    await sleep(values.rescanWait, { signal });
    return EXIT.ok;
  },
});

function settingsOf(env: NodeJS.ProcessEnv): Settings {
  const confName = env["CNI_CONF_NAME"] ?? "10-coil.conflist";
  if (confName.includes("/") || !confName.endsWith(".conflist")) {
    throw new ConfigError("invalid-flags", [
      `CNI_CONF_NAME is "${confName}"; it must be a file name that ends in .conflist`,
    ]);
  }
  return {
    confName,
    etcDir: env["CNI_ETC_DIR"] ?? "/host/etc/cni/net.d",
    binDir: env["CNI_BIN_DIR"] ?? "/host/opt/cni/bin",
    binary: env["COIL_PATH"] ?? "/usr/local/coil/coil",
    removeOthers: env["CNI_REMOVE_OTHERS"] === "true",
  };
}

/** The configuration's text, once it is known to be a list of plugins. */
async function readConflist(env: NodeJS.ProcessEnv): Promise<string> {
  const file = env["CNI_NETCONF_FILE"] ?? "";
  const inline = env["CNI_NETCONF"] ?? "";
  const source = inline === "" ? `CNI_NETCONF_FILE ${file}` : "CNI_NETCONF";
  if (inline === "" && file === "") {
    throw new ConfigError("invalid-flags", [
      "neither CNI_NETCONF nor CNI_NETCONF_FILE is set; one must give the network configuration",
    ]);
  }
  const fault = (why: string): ConfigError =>
    new ConfigError("invalid-flags", [`${source} is not a CNI configuration list: ${why}`]);
  let text = inline;
  let parsed: unknown;
  try {
    if (inline === "") text = await readFile(file, "utf8");
    parsed = JSON.parse(text);
  } catch (error) {
    throw fault(describeError(error));
  }
  const { name, plugins } = (parsed ?? {}) as { readonly name?: unknown; readonly plugins?: unknown };
  if (typeof name !== "string" || name === "") throw fault("name is missing");
  if (!Array.isArray(plugins) || plugins.length === 0) throw fault("plugins is missing or empty");
  const untyped = plugins.findIndex((plugin: { readonly type?: unknown } | null) => typeof plugin?.type !== "string");
  if (untyped >= 0) throw fault(`plugins[${untyped}] has no type`);
  return text;
}

async function installBinary(settings: Settings): Promise<boolean> {
  const target = join(settings.binDir, "coil");
  if (await sameContent(settings.binary, target)) return false;
  replaceFile(target, { copyOf: settings.binary }, { mode: 0o755, sync: true });
  return true;
}

async function installConfig(settings: Settings, text: string): Promise<boolean> {
  const target = join(settings.etcDir, settings.confName);
  const there = await statOptional(target);
  if (there !== undefined && modeOf(there) === 0o644 && (await readFile(target)).equals(Buffer.from(text)))
    return false;
  replaceFile(target, text, { mode: 0o644, sync: true });
  return true;
}

/** With its parents. Node's own way of making those never ends where the file system has no folders to make, as /proc. */
async function makeFolder(path: string): Promise<void> {
  const isFolder = async (): Promise<boolean> => (await statOptional(path))?.isDirectory() === true;
  if (await isFolder()) return;
  if (dirname(path) !== path) await makeFolder(dirname(path));
  try {
    await mkdir(path, { mode: 0o755 });
  } catch (error) {
    // Somebody may have made it meanwhile.
    if ((error as NodeJS.ErrnoException).code !== "EEXIST" || !(await isFolder())) throw error;
  }
}

/** Other networks would win or lose against ours by their file names; returns those that were put aside. */
async function disableOthers(settings: Settings): Promise<string[]> {
  const others = (await readdir(settings.etcDir)).filter(
    (name) => name.includes("conflist") && name !== settings.confName && !name.endsWith(".coil-disabled"),
  );
  for (const name of others) {
    const path = join(settings.etcDir, name);
    if (settings.removeOthers) await rm(path);
    else await rename(path, `${path}.coil-disabled`);
  }
  return others;
}

async function sameContent(a: string, b: string): Promise<boolean> {
  const [left, right] = await Promise.all([stat(a), statOptional(b)]);
  if (left.size !== right?.size || modeOf(right) !== 0o755) return false;
  const [one, other] = await Promise.all([readFile(a), readFile(b)]);
  return one.equals(other);
}

function modeOf(file: Stats): number {
  return file.mode & 0o777;
}

async function statOptional(path: string): Promise<Stats | undefined> {
  try {
    return await stat(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
