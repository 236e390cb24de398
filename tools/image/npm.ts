/** Packages of npm that are in the build, by the lock file. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Part } from "./sbom.ts";

interface Locked {
  readonly version?: string;
  readonly integrity?: string;
  readonly license?: string;
  readonly dev?: boolean;
  /** For development, or an optional part of a package that is not. */
  readonly devOptional?: boolean;
  readonly optional?: boolean;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
  readonly libc?: readonly string[];
}

/** A package, and the folder in which its license is. */
export interface NpmPackage extends Part {
  readonly folder: string;
}

/**
 * The packages of the lock file in `folder` that `wanted` takes, for Linux on x86-64 with glibc. Throws if the lock file has none, or one without a
 * version.
 */
export function lockedPackages(folder: string, wanted: (name: string, locked: Locked) => boolean): NpmPackage[] {
  const lock = JSON.parse(readFileSync(join(folder, "package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, Locked>>;
  };
  const isHere = ({ os, cpu, libc }: Locked): boolean =>
    (os?.includes("linux") ?? true) && (cpu?.includes("x64") ?? true) && (libc?.includes("glibc") ?? true);
  const found = Object.entries(lock.packages).flatMap(([path, locked]) => {
    const name = path.replace(/^.*node_modules\//, "");
    return path !== "" && isHere(locked) && wanted(name, locked) ? [partOf(join(folder, path), name, locked)] : [];
  });
  if (found.length === 0) throw new Error(`${folder}/package-lock.json has none of the packages that are looked for`);
  return found;
}

/** Returns the packages that are bundled into the programs, and the runtime of the CNI executables. */
export function bundledPackages(root: string): NpmPackage[] {
  return lockedPackages(
    root,
    (name, { dev, devOptional, optional }) =>
      // koffi's other platforms are not copied.
      name === "@oven/bun-linux-x64" ||
      (dev !== true && devOptional !== true && (optional !== true || name === "@koromix/koffi-linux-x64")),
  );
}

function partOf(folder: string, name: string, { version, integrity, license }: Locked): NpmPackage {
  if (version === undefined) throw new Error(`the lock file names no version of ${name}`);
  const sha512 = /^sha512-(.+)$/.exec(integrity ?? "")?.[1];
  return {
    name,
    version,
    folder,
    purl: `pkg:npm/${name.replace("@", "%40")}@${version}`,
    ...(license === undefined ? {} : { license }),
    ...(sha512 === undefined
      ? {}
      : { checksum: { algorithm: "SHA512", value: Buffer.from(sha512, "base64").toString("hex") } as const }),
  };
}
