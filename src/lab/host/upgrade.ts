import { execFile } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import type { AbortOptions } from "#base/async";
import { describeError } from "#base/errors";
import { parseYaml, YamlError } from "#base/yaml";
import { coilCrds } from "#kube/coil";
import type { CrdManifest } from "#kube/crd";
import { unpackImage } from "#lab/image";
import type { LabNode, Topology } from "#lab/topology";
import { LabError } from "./errors.ts";
import type { LabPaths } from "./lab-paths.ts";
import { type LabTunnel, planSpareTunnel } from "./tunnel.ts";

/** The builds of a lab with `--upgrade`: the other one, with which it begins, and this one. */
export type BuildName = "before" | "after";

/** The place of the controllers, beside the nodes' names. */
const CONTROLLERS = "controllers";
const ROUTER = "coil-egress";
/** The time that `--version` or an installer may take, in milliseconds. */
const RUN_MS = 30_000;

/** A build whose programs a lab runs. */
export interface LabBuild {
  readonly version: string;
  /** Command line of `isthmus`, to which the name of a program is added. */
  readonly isthmus: readonly string[];
  /** The executable that this build's installer puts on a node as `coil`. */
  readonly cniExecutable: string;
  /** Command line of the `isthmus` whose `coil-installer` does that. */
  readonly installer: readonly string[];
  /** A text that is in the command line of each of its programs, and of none of another build. */
  readonly mark: string;
  /** The API types that come with the build. */
  readonly crds: readonly CrdManifest[];
}

/** The upgrade of a lab as plain data. */
export interface LabUpgrade {
  readonly versions: Readonly<Record<BuildName, string>>;
  /** A text that is in the command line of every program of a build. */
  readonly marks: Readonly<Record<BuildName, string>>;
  /** The command of routers of each build; they are pods, so their Egress says it. */
  readonly routers: Readonly<Record<BuildName, readonly string[]>>;
  /** The places that are switched together: the controllers, with the tunnel's server, then each node. */
  readonly places: readonly string[];
  /** A tunnel to the nodes, beside the direct way. */
  readonly tunnel: LabTunnel;
}

/** A request to run the programs of a place from another build. */
export interface SwitchRequest {
  readonly place: string;
  readonly build: BuildName;
}

/**
 * The build of a release: a folder as `./run release-build` makes it, which is a built checkout, or an archive of the image. Rejects with
 * {@link LabError} `start-failed` where that is neither, and with `ImageError`.
 */
export async function openBuildBefore(
  path: string,
  after: Pick<LabBuild, "installer">,
  { paths, signal }: { readonly paths: LabPaths } & AbortOptions,
): Promise<LabBuild> {
  const kind = kindOf(path);
  if (kind === "file") {
    const { isthmus, cniExecutable } = await unpackImage(path, join(paths.image, "before"));
    // An image has no manifests, and its root is not that of the node.
    return {
      isthmus,
      cniExecutable,
      installer: after.installer,
      // As its root has it.
      mark: "/usr/local/isthmus/",
      crds: coilCrds,
      version: await versionOf(isthmus, signal),
    };
  }
  const isthmus = [join(path, "dist/isthmus")];
  const cniExecutable = join(path, "dist/cni/coil");
  for (const file of [...isthmus, cniExecutable])
    if (kindOf(file) !== "file")
      throw new LabError(
        "start-failed",
        `--upgrade: ${file} is not there; a folder must be a built checkout, as ./run release-build VERSION makes it`,
      );
  const crds = readCrds(join(path, "deploy/crds"));
  return {
    isthmus,
    cniExecutable,
    installer: isthmus,
    mark: markOf(isthmus),
    crds,
    version: await versionOf(isthmus, signal),
  };
}

/** The launcher's path begins that of the bundle which it runs. */
function markOf(isthmus: readonly string[]): string {
  return isthmus.at(-1) ?? "";
}

/** The build of this process. Rejects with {@link LabError} `start-failed` if it does not run. */
export async function ownBuild(
  { isthmus, cniExecutable }: Pick<LabBuild, "isthmus" | "cniExecutable">,
  { signal }: AbortOptions,
): Promise<LabBuild> {
  const version = await versionOf(isthmus, signal);
  return { isthmus, cniExecutable, installer: isthmus, mark: markOf(isthmus), crds: coilCrds, version };
}

/** Pure: the upgrade of a lab. */
export function planUpgrade(
  topology: Topology,
  builds: Readonly<Record<BuildName, Pick<LabBuild, "version" | "mark" | "isthmus">>>,
  paths: Pick<LabPaths, "dir">,
): LabUpgrade {
  const { before, after } = builds;
  return {
    versions: { before: before.version, after: after.version },
    marks: { before: before.mark, after: after.mark },
    routers: { before: [...before.isthmus, ROUTER], after: [...after.isthmus, ROUTER] },
    places: [CONTROLLERS, ...topology.nodes.map(({ name }) => name)],
    tunnel: planSpareTunnel(topology, paths),
  };
}

/** Pure: where a program of a namespace belongs to. */
export function placeOf({ nodes }: Pick<Topology, "nodes">, { netns }: { readonly netns: string }): string {
  return nodes.find((node) => node.netns === netns)?.name ?? CONTROLLERS;
}

/** Pure: the folders of a node's CNI executables and configurations, which `coil-installer` fills. */
export function cniFolders(
  paths: LabPaths,
  node: Pick<LabNode, "name">,
): { readonly bin: string; readonly etc: string } {
  const folder = join(paths.image, "cni", node.name);
  return { bin: join(folder, "bin"), etc: join(folder, "net.d") };
}

/** Runs a build's `coil-installer` for a node, as the init container of `coild` does. Rejects with {@link LabError} `start-failed`. */
export async function installOn(
  node: Pick<LabNode, "name">,
  build: LabBuild,
  { paths, signal }: { readonly paths: LabPaths } & AbortOptions,
): Promise<void> {
  const { bin, etc } = cniFolders(paths, node);
  for (const folder of [bin, etc]) mkdirSync(folder, { recursive: true, mode: 0o755 });
  const plugin = { type: "coil", socket: paths.socketOf(node.name) };
  const conflist = { cniVersion: "1.1.0", name: "k8s-pod-network", plugins: [plugin] };
  await run([...build.installer, "coil-installer", "--rescan-wait=0s"], {
    what: `coil-installer ${build.version} of ${node.name}`,
    env: {
      CNI_ETC_DIR: etc,
      CNI_BIN_DIR: bin,
      COIL_PATH: build.cniExecutable,
      CNI_NETCONF: JSON.stringify(conflist),
    },
    signal,
  });
}

/** The version that a build says it is. */
async function versionOf(isthmus: readonly string[], signal: AbortSignal | undefined): Promise<string> {
  const text = await run([...isthmus, "--version"], { what: "isthmus --version", env: {}, signal });
  return text.trim().split(" ").at(-1) ?? "";
}

async function run(
  [file = "", ...args]: readonly string[],
  at: { readonly what: string; readonly env: Readonly<Record<string, string>> } & AbortOptions,
): Promise<string> {
  const path = process.env["PATH"] ?? "/usr/sbin:/usr/bin:/sbin:/bin";
  try {
    const { stdout } = await promisify(execFile)(file, args, {
      env: { PATH: path, ISTHMUS_NODE: process.execPath, ...at.env },
      timeout: RUN_MS,
      signal: at.signal,
    });
    return stdout;
  } catch (error) {
    at.signal?.throwIfAborted();
    const { stderr = "" } = error as { readonly stderr?: string };
    const why = stderr.trim().split("\n").at(-1) || describeError(error);
    throw new LabError("start-failed", `${at.what} failed: ${why}`, { cause: error });
  }
}

/** The files of a release that are those of a type that this lab serves. */
function readCrds(folder: string): readonly CrdManifest[] {
  const names = new Set(coilCrds.map(({ metadata }) => metadata.name));
  const fault = (file: string, error: unknown): LabError =>
    new LabError("start-failed", `--upgrade: ${join(folder, file)}: ${describeError(error)}`, { cause: error });
  let files: readonly string[];
  try {
    files = readdirSync(folder);
  } catch (error) {
    throw fault("", error);
  }
  return files.flatMap((file) => {
    try {
      const crd = parseYaml(readFileSync(join(folder, file), "utf8")).value as Partial<CrdManifest> | null;
      return names.has(crd?.metadata?.name ?? "") ? [crd as CrdManifest] : [];
    } catch (error) {
      if (!(error instanceof YamlError) && !(error instanceof Error && "syscall" in error)) throw error;
      throw fault(file, error);
    }
  });
}

function kindOf(path: string): "file" | "folder" | "none" {
  const found = statSync(path, { throwIfNoEntry: false });
  return found === undefined ? "none" : found.isDirectory() ? "folder" : "file";
}
