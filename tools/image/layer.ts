/** Layers of an image: trees of files as tars that depend on nothing but their contents. */
import { execFileSync, spawn } from "node:child_process";
import { createHash, type Hash } from "node:crypto";
import { once } from "node:events";
import { createReadStream, createWriteStream, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { blobPath, type Layer } from "./oci.ts";

/** The arguments of GNU tar for a reproducible archive of `folder`: order, owners, times; modes are those of the files. */
export function tarArguments(folder: string, epoch: number): string[] {
  const owners = ["--owner=0", "--group=0", "--numeric-owner"];
  return ["--sort=name", "--format=gnu", `--mtime=@${epoch}`, ...owners, "--directory", folder];
}

/** The digest of the tar of a tree of files, which names it whatever compresses it. */
export async function diffIdOf(folder: string, epoch: number): Promise<string> {
  const hash = createHash("sha256");
  const tar = spawn("tar", ["--create", ...tarArguments(folder, epoch), "."], { stdio: ["ignore", "pipe", "inherit"] });
  const [[code]] = await Promise.all([once(tar, "close"), pipeline(tar.stdout, hash)]);
  if (code !== 0) throw new Error(`tar ended with ${code}`);
  return `sha256:${hash.digest("hex")}`;
}

/** Packs a tree of files, and stores the blob in the layout. */
export async function packLayer(folder: string, layout: string, { epoch, made, level }: PackOptions): Promise<Layer> {
  const plain = join(layout, "layer.tar");
  execFileSync("tar", ["--create", "--file", plain, ...tarArguments(folder, epoch), "."]);
  const packed = `${plain}.gz`;
  const [tar, gzip] = [createHash("sha256"), createHash("sha256")];
  let size = 0;
  const count = (bytes: Buffer): void => {
    size += bytes.length;
  };
  // Node's zlib is pinned with it, and writes no time.
  await pipeline(
    createReadStream(plain),
    passing(tar),
    createGzip({ level }),
    passing(gzip, count),
    createWriteStream(packed),
  );
  rmSync(plain);
  const digest = `sha256:${gzip.digest("hex")}`;
  renameSync(packed, join(layout, blobPath(digest)));
  return { digest, diffId: `sha256:${tar.digest("hex")}`, size, made };
}

export interface PackOptions {
  /** The time of all files, in seconds since 1970. */
  readonly epoch: number;
  readonly made: string;
  /** The level of gzip, from 0 to 9. */
  readonly level: number;
}

function passing(hash: Hash, seen: (bytes: Buffer) => void = () => undefined): Transform {
  return new Transform({
    transform(bytes: Buffer, _encoding, done) {
      hash.update(bytes);
      seen(bytes);
      done(null, bytes);
    },
  });
}
