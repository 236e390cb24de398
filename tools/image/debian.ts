/**
 * Packages of Debian with all that they depend on, fetched by apt as for an empty machine, without recommendations. apt checks each against the
 * signed lists.
 *
 * Owns: nothing but files below the folder that it is given. Does not know: what becomes of the packages.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** A package that was fetched. */
export interface DebianPackage {
  readonly name: string;
  readonly version: string;
  readonly architecture: string;
  /** The name of the source package. */
  readonly source: string;
  /** The path of the `.deb`. */
  readonly file: string;
  /** The digest of the `.deb`, in hexadecimal digits. */
  readonly sha256: string;
  /** The package's own description of itself, as dpkg keeps it. */
  readonly control: string;
}

/** Fetches into `folder` what is not there yet. Throws if apt cannot resolve or fetch; its words are in the error. */
export function fetchPackages(names: readonly string[], folder: string): DebianPackage[] {
  const archives = join(folder, "archives");
  mkdirSync(join(archives, "partial"), { recursive: true });
  const status = join(folder, "status");
  // Nothing counts as installed.
  writeFileSync(status, "");
  const options = [`Dir::State::Status=${status}`, `Dir::Cache::Archives=${archives}`, "Debug::NoLocking=1"];
  // apt would fetch as a user of its own, who may not be allowed to write here.
  const own = [...options, "APT::Sandbox::User=root", "APT::Install-Recommends=false"].flatMap((one) => ["-o", one]);
  const apt = (...args: readonly string[]): string => {
    const { status: code, stdout, stderr } = spawnSync("apt-get", [...own, ...args], { encoding: "utf8" });
    if (code !== 0)
      throw new Error(`apt-get ${args[0]} ended with ${code}: ${stderr.trim().split("\n").slice(0, 3).join("; ")}`);
    return stdout;
  };
  const planned = apt("install", "--simulate", ...names);
  // "Inst NAME (VERSION REPOSITORY [ARCHITECTURE])"
  const wanted = [...planned.matchAll(/^Inst (\S+) \((\S+) .*\[(\w+)\]\)/gm)].map(([, name, version, architecture]) =>
    [name, version?.replaceAll(":", "%3a"), architecture].join("_"),
  );
  if (wanted.length === 0) throw new Error(`apt plans nothing for ${names.join(", ")}:\n${planned}`);
  // What is there needs no network.
  if (!wanted.every((name) => existsSync(join(archives, `${name}.deb`))))
    apt("install", "--download-only", "--assume-yes", ...names);
  // Packages of an earlier plan stay in the folder.
  return readdirSync(archives)
    .filter((file) => file.endsWith(".deb") && wanted.includes(file.slice(0, -4)))
    .sort()
    .map((file) => describe(join(archives, file)));
}

function describe(file: string): DebianPackage {
  const control = execFileSync("dpkg-deb", ["--field", file], { encoding: "utf8" });
  const field = (name: string): string | undefined => new RegExp(`^${name}: (.*)$`, "m").exec(control)?.[1];
  const name = field("Package") ?? "";
  return {
    name,
    version: field("Version") ?? "",
    architecture: field("Architecture") ?? "",
    source: (field("Source") ?? name).replace(/ .*/, ""),
    file,
    sha256: createHash("sha256").update(readFileSync(file)).digest("hex"),
    control,
  };
}
