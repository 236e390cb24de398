import { execFileSync } from "node:child_process";
import { chmodSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** Another root file system in which the build is: its folder, and Node and the build as programs see them there. */
export interface OtherRoot {
  readonly folder: string;
  readonly node: string;
  readonly dist: string;
}

/**
 * Keeps V8's compiled code of what each program calls at its start in `dist/.compile-cache`; it saves a third of the start time.
 * Programs that run as root add to the folder, so it is emptied first. V8 hashes strings with a random seed, which the code contains: with one
 * that is fixed here, two builds at the same path are equal byte for byte. The programs themselves have a random one.
 */
export function compileAhead(dist: string, programs: readonly string[], other?: OtherRoot): void {
  rmSync(join(dist, ".compile-cache"), { recursive: true, force: true });
  const wrapper = ".node";
  writeFileSync(join(dist, wrapper), `#!/bin/sh\nexec '${other?.node ?? process.execPath}' --random-seed=1 "$@"\n`, {
    mode: 0o755,
  });
  const env = other === undefined ? process.env : { PATH: "/usr/bin:/bin" };
  const seen = other?.dist ?? dist;
  // Programs with a file of their own and no link.
  const files = readdirSync(dist).flatMap((file) => /^program-(.+)\.cjs$/.exec(file)?.[1] ?? []);
  const calls = [
    ...programs.map((name) => [name]),
    ...files.filter((name) => !programs.includes(name)).map((name) => ["isthmus", name]),
  ];
  for (const [called = "", ...words] of calls) {
    const inside = other === undefined ? [] : ["chroot", other.folder];
    const command = [...inside, join(seen, called), ...words, "--version"];
    execFileSync("env", [`ISTHMUS_NODE=${join(seen, wrapper)}`, "ISTHMUS_COMPILES_AHEAD=1", ...command], {
      stdio: ["ignore", "ignore", "inherit"],
      env: { ...env, PATH: `${env.PATH}:/usr/sbin` },
    });
  }
  rmSync(join(dist, wrapper));
  // What V8 keeps of a CommonJS module has a number that depends on the machine's load. They are those of koffi, and small.
  const cache = join(dist, ".compile-cache");
  for (const entry of readdirSync(cache, { recursive: true, withFileTypes: true })) {
    const file = join(entry.parentPath, entry.name);
    if (entry.isFile() && readFileSync(file).includes("__filename")) rmSync(file);
    // Programs of every user read what the build has made, and take nothing that others may write.
    else chmodSync(file, entry.isFile() ? 0o644 : 0o755);
  }
  chmodSync(cache, 0o755);
}
