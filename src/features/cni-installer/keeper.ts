import { readdir } from "node:fs/promises";
import { basename, join } from "node:path";
import { type AbortOptions, Backoff, Dirty, TaskGroup } from "#base/async";
import type { Clock } from "#base/clock";
import { watchFiles } from "#base/file";
import type { HealthPart } from "#base/health";
import type { Logger } from "#base/log";
import { reconcile } from "#base/reconcile";
import { STANDALONE_SUFFIX } from "#wire/cni-handover";
import {
  asInstallError,
  type CniInstallation,
  hasSuitePlugin,
  InstallError,
  installBinary,
  installConfig,
  installPlugin,
  pluginFiles,
  readLauncher,
  readOptional,
  statOptional,
  typesOf,
} from "./installer.ts";

/** Files are put back at most this often within this time, in milliseconds. */
const MOST = 3;
const WITHIN_MS = 600_000;
/** The time between two looks without a change of the folders, in milliseconds. */
const RESYNC_MS = 10_000;
const BACKOFF_MS = { initialMs: 200, maxMs: 5000 };
/** Configurations that one look reads. */
const MAX_CONFIGURATIONS = 100;

/** A file that is missing from a node, and what puts it back. */
interface MissingFile {
  readonly path: string;
  readonly restore: () => Promise<unknown>;
}

/**
 * Keeps the files that the pods of a node need: without its configuration the runtime says that the node has no network, and pods leave their Services; without an
 * executable no pod starts or ends. A file that another program has removed is put back, at most three times within ten minutes. After that files stay missing
 * until somebody else puts them back: a tool in exclusive mode, or an administrator, wants them away. A file that is there, with whatever content, is not touched.
 */
export class CniKeeper {
  readonly #parts: ConstructorParameters<typeof CniKeeper>[0];
  readonly #conflist: string;
  /** Times at which files were put back, on the monotonic clock; at most {@link MOST}. */
  #restored: number[] = [];
  /** True from the loss that is left until all files are there. */
  #isLeft = false;

  constructor(
    parts: {
      readonly installation: CniInstallation;
      /** Called once when files are left missing, with the reason as a sentence. */
      readonly onLeft: (why: string) => void;
      readonly log: Logger;
      readonly clock: Clock;
    },
    conflist: string,
  ) {
    this.#parts = parts;
    this.#conflist = conflist;
  }

  /** Watches and restores until the signal aborts. The health part is degraded while a file is missing. */
  async run({ health, signal }: { readonly health: HealthPart; readonly signal: AbortSignal }): Promise<void> {
    const { clock } = this.#parts;
    const dirty = new Dirty(clock);
    const group = new TaskGroup(signal);
    group.spawn(async (at) => watchFiles(await this.#watched(), () => dirty.mark("file"), { signal: at, clock }));
    group.spawn((at) =>
      reconcile({
        ...{ dirty, health, signal: at, resyncMs: RESYNC_MS, backoff: new Backoff(BACKOFF_MS) },
        sync: (options) => this.sync(options),
      }),
    );
    await group.wait();
  }

  /** Puts missing files back. Returns their number. Throws {@link InstallError}: `removed` if files are left missing. */
  async sync({ signal }: AbortOptions = {}): Promise<number> {
    const { installation, log, clock, onLeft } = this.#parts;
    try {
      const missing = await this.#missing();
      if (missing.length === 0) {
        this.#isLeft = false;
        return 0;
      }
      const files = missing.map(({ path }) => path);
      const now = clock.monotonic();
      this.#restored = this.#restored.filter((at) => now - at < WITHIN_MS);
      if (this.#isLeft || this.#restored.length >= MOST) {
        const why = await this.#leftText(files);
        if (!this.#isLeft) {
          this.#isLeft = true;
          log.error("files of this node's network were removed again and again; they are not put back any more", {
            files,
            why,
          });
          onLeft(why);
        }
        throw new InstallError("removed", why);
      }
      signal?.throwIfAborted();
      for (const { restore } of missing) await restore();
      this.#restored.push(now);
      log.warn("another program had removed files of this node's network; they were put back", {
        files,
        times: this.#restored.length,
      });
      return missing.length;
    } catch (error) {
      throw asInstallError(error, installation);
    }
  }

  async #missing(): Promise<readonly MissingFile[]> {
    const { installation } = this.#parts;
    const found: MissingFile[] = [];
    const conflist = this.#conflist;
    // The executables come first: a configuration must never name one that is missing.
    for (const path of await this.#binaries())
      if (!(await canRun(path))) found.push({ path, restore: () => installBinary(installation, conflist) });
    for (const plugin of installation.plugins) {
      for (const path of await this.#placesOf(plugin))
        if (!(await canRun(path))) found.push({ path, restore: () => installPlugin(installation, plugin) });
    }
    const path = join(installation.etcDir, installation.confName);
    const there = await statOptional(path);
    const isThere = there !== undefined && there.size > 0;
    // Another installation of the suite, or Multus, may have put the network under another name.
    if (!isThere && !(await this.#configurations()).some(({ types }) => hasSuitePlugin(types)))
      found.push({ path, restore: () => installConfig(installation, conflist) });
    return found;
  }

  /** The paths of `coil`, and of `coil-standalone` where `coil` is the launcher. */
  async #binaries(): Promise<readonly string[]> {
    const { binary, binDir } = this.#parts.installation;
    if (binary === undefined) return [];
    const path = join(binDir, "coil");
    return (await readLauncher(binary)) === undefined ? [path] : [`${path}${STANDALONE_SUFFIX}`, path];
  }

  /** The paths of a further executable, and of the standalone one that it runs. */
  async #placesOf(plugin: string): Promise<readonly string[]> {
    const { binDir } = this.#parts.installation;
    return (await pluginFiles(plugin)).map((file) => join(binDir, basename(file)));
  }

  async #watched(): Promise<readonly string[]> {
    const { etcDir, binDir, confName, plugins } = this.#parts.installation;
    const ofPlugins = await Promise.all(plugins.map((plugin) => this.#placesOf(plugin)));
    const executables = [...(await this.#binaries()), ...ofPlugins.flat()];
    return [etcDir, binDir, join(etcDir, confName), ...executables];
  }

  /** The configurations of the folder in the order in which runtimes read them, with the plugins that they name. */
  async #configurations(): Promise<readonly { readonly name: string; readonly types: readonly string[] }[]> {
    const { etcDir } = this.#parts.installation;
    const names = (await readdir(etcDir)).filter((name) => /\.(conf|conflist|json)$/.test(name)).sort();
    return Promise.all(
      names.slice(0, MAX_CONFIGURATIONS).map(async (name) => ({
        name,
        types: typesOf(await readOptional(join(etcDir, name))),
      })),
    );
  }

  async #leftText(files: readonly string[]): Promise<string> {
    const [first] = await this.#configurations();
    const now =
      first === undefined
        ? `${this.#parts.installation.etcDir} has no configuration now`
        : `the first configuration is ${first.name} (${first.types.join(", ") || "no plugin"}) now`;
    return `${files.join(", ")}: removed by another program more than ${MOST} times within ${WITHIN_MS / 60_000} minutes, and left so; ${now}: turn the exclusive mode of that network off or remove it, then run coil-installer, or restart this pod`;
  }
}

async function canRun(path: string): Promise<boolean> {
  const there = await statOptional(path);
  return there?.isFile() === true && there.size > 0 && (there.mode & 0o111) !== 0;
}
