import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { createReadStream, existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { promisify } from "node:util";
import * as v from "valibot";
import { ImageError } from "./errors.ts";

/** The parts of an image that a lab uses. */
export interface LabImage {
  /** Command line of `isthmus`, to which the name of a program is added. */
  readonly isthmus: readonly string[];
  /** The CNI executable, which a node runs outside of the image, as after `coil-installer`. */
  readonly cniExecutable: string;
  /** The digest of the image's manifest. */
  readonly digest: string;
}

const DIGEST = v.pipe(v.string(), v.regex(/^sha256:[0-9a-f]{64}$/));
const INDEX = v.object({ manifests: v.pipe(v.array(v.object({ digest: DIGEST })), v.minLength(1)) });
const MANIFEST = v.object({ layers: v.pipe(v.array(v.object({ digest: DIGEST })), v.minLength(1), v.maxLength(127)) });
/** A document of an image, in bytes. */
const MAX_DOCUMENT = 1024 * 1024;

const PROGRAM = "/usr/local/isthmus/isthmus";
const CNI = "/usr/local/coil/coil";
/**
 * Runs a program with the image's root, and the machine's devices, processes and /run, where the lab's files and network namespaces are.
 * Namespaces that are made later come in too. The process stays the same one, so it gets signals.
 */
const ENTER = `for one in dev proc run sys; do mount --rbind "/$one" "$0/$one" || exit 1; done; exec chroot "$0" ${PROGRAM} "$@"`;

/**
 * Unpacks the first image of an OCI archive into `folder`, which is emptied first. Rejects with {@link ImageError}. The archive must have the layers
 * that `./run image` makes; files that a later layer removes are not supported.
 */
export async function unpackImage(archive: string, folder: string): Promise<LabImage> {
  if (!existsSync(archive))
    throw new ImageError("unreadable", `${archive} is not there: ./run image makes such a file`);
  rmSync(folder, { recursive: true, force: true });
  const [layout, root] = [join(folder, "layout"), join(folder, "root")];
  for (const path of [layout, root]) mkdirSync(path, { recursive: true, mode: 0o755 });
  await tar(archive, ["--extract", "--file", archive, "--directory", layout]);
  const index = readDocument(archive, join(layout, "index.json"), INDEX);
  const digest = index.manifests[0]?.digest ?? "";
  const blob = async (name: string): Promise<string> => {
    const file = join(layout, "blobs", name.replace(":", "/"));
    if (!existsSync(file)) throw new ImageError("unreadable", `${archive} lacks the blob ${name}`);
    const hash = createHash("sha256");
    await pipeline(createReadStream(file), hash);
    const found = `sha256:${hash.digest("hex")}`;
    if (found !== name) throw new ImageError("damaged", `${archive}: the blob ${name} has the digest ${found}`);
    return file;
  };
  const { layers } = readDocument(archive, await blob(digest), MANIFEST);
  for (const layer of layers)
    await tar(archive, ["--extract", "--gzip", "--file", await blob(layer.digest), "--directory", root]);
  rmSync(layout, { recursive: true });
  for (const path of [PROGRAM, CNI])
    if (!existsSync(join(root, path))) throw new ImageError("not-ours", `${archive} is an image without ${path}`);
  const enter = ["unshare", "--mount", "--propagation=slave", "/bin/sh", "-c", ENTER, root];
  return { isthmus: enter, cniExecutable: join(root, CNI), digest };
}

async function tar(archive: string, args: readonly string[]): Promise<void> {
  try {
    await promisify(execFile)("tar", args);
  } catch (error) {
    const { stderr = "" } = error as { readonly stderr?: string };
    throw new ImageError("unreadable", `${archive} cannot be unpacked: ${stderr.trim().split("\n")[0]}`, {
      cause: error,
    });
  }
}

function readDocument<S extends v.GenericSchema>(archive: string, file: string, schema: S): v.InferOutput<S> {
  let document: unknown;
  try {
    const text = readFileSync(file);
    if (text.length > MAX_DOCUMENT) throw new RangeError(`${text.length} bytes`);
    document = JSON.parse(text.toString("utf8"));
  } catch (error) {
    throw new ImageError("unreadable", `${archive} is no archive of an OCI image: ${(error as Error).message}`, {
      cause: error,
    });
  }
  const parsed = v.safeParse(schema, document);
  if (!parsed.success) {
    const [issue] = parsed.issues;
    throw new ImageError("unreadable", `${archive}: ${v.getDotPath(issue) ?? "document"}: ${issue.message}`);
  }
  return parsed.output;
}
