import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import fc from "fast-check";
import { ImageError, unpackImage } from "./index.ts";

/** Files of an archive by their paths. */
type Files = Record<string, string | Buffer>;

function scene(t: TestContext) {
  const dir = mkdtempSync(join(tmpdir(), "isthmus-unpack-"));
  t.after(() => rmSync(dir, { recursive: true, force: true }));
  const pack = (name: string, files: Files, gzip = false): string => {
    const from = join(dir, `${name}.files`);
    rmSync(from, { recursive: true, force: true });
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(join(from, path, ".."), { recursive: true });
      writeFileSync(join(from, path), text);
    }
    const file = join(dir, name);
    execFileSync("tar", ["--create", ...(gzip ? ["--gzip"] : []), "--file", file, "--directory", from, "."]);
    return file;
  };
  const blob = (bytes: string | Buffer): readonly [digest: string, path: string] => {
    const hex = createHash("sha256").update(bytes).digest("hex");
    return [`sha256:${hex}`, `blobs/sha256/${hex}`];
  };
  /** The files of an image with one layer. */
  const image = (files: Files): { files: Files; layer: string } => {
    const layer = readFileSync(pack("layer", files, true));
    const [digest, path] = blob(layer);
    const manifest = JSON.stringify({ layers: [{ digest }] });
    const [manifestDigest, manifestPath] = blob(manifest);
    const index = JSON.stringify({ manifests: [{ digest: manifestDigest }] });
    return { files: { "index.json": index, [manifestPath]: manifest, [path]: layer }, layer: path };
  };
  const folder = join(dir, "root");
  const unpack = (files: Files) => unpackImage(pack("image.tar", files), folder);
  return { dir, image, unpack, folder };
}

const OURS: Files = { "usr/local/isthmus/isthmus": "program", "usr/local/coil/coil": "plugin" };

test("unpackImage: an image of ours gives its root, and commands that lead there", async (t) => {
  const { image, unpack, folder } = scene(t);
  mkdirSync(folder);
  writeFileSync(join(folder, "old"), "of an earlier lab");
  const { files } = image(OURS);
  const { isthmus, cniExecutable, digest } = await unpack(files);
  assert.equal(readFileSync(cniExecutable, "utf8"), "plugin");
  assert.equal(isthmus.at(-1), join(folder, "root"));
  assert.match(digest, /^sha256:[0-9a-f]{64}$/);
  assert.ok(!existsSync(join(folder, "old")) && !existsSync(join(folder, "layout")));
});

test("unpackImage: what is no image of ours is refused by name", async (t) => {
  const { dir, image, unpack, folder } = scene(t);
  await assert.rejects(unpackImage(join(dir, "none.tar"), folder), {
    code: "unreadable",
    message: /not there: \.\/run image/,
  });
  writeFileSync(join(dir, "text"), "no archive");
  await assert.rejects(unpackImage(join(dir, "text"), folder), { code: "unreadable", message: /cannot be unpacked/ });
  await assert.rejects(unpack({ other: "" }), { code: "unreadable", message: /no archive of an OCI image/ });
  await assert.rejects(unpack(image({ "bin/sh": "" }).files), { code: "not-ours", message: /without \/usr\/local/ });
  const { files, layer } = image(OURS);
  await assert.rejects(unpack({ ...files, [layer]: "changed" }), { code: "damaged", message: /has the digest/ });
  const { [layer]: _, ...lacking } = files;
  await assert.rejects(unpack(lacking), { code: "unreadable", message: /lacks the blob/ });
  await assert.rejects(unpack({ ...files, "index.json": '{"manifests":[{"digest":"sha256:../../x"}]}' }), {
    code: "unreadable",
    message: /manifests\.0\.digest/,
  });
});

test("unpackImage: whatever an index says, only an ImageError comes of it", async (t) => {
  const { unpack } = scene(t);
  await fc.assert(
    fc.asyncProperty(fc.oneof(fc.string(), fc.json()), async (index) => {
      await assert.rejects(unpack({ "index.json": index }), ImageError);
    }),
    { numRuns: 30 },
  );
});
