/**
 * The documents of an OCI image layout (image-spec v1.0: image-layout.md, config.md, manifest.md, image-index.md) around layers. Pure.
 */
import { createHash } from "node:crypto";

/** A layer: a tar, compressed by gzip. */
export interface Layer {
  /** `sha256:` and the digest of the compressed bytes. */
  readonly digest: string;
  /** The same of the tar. */
  readonly diffId: string;
  /** Compressed, in bytes. */
  readonly size: number;
  /** The way in which it was made, for `history`. */
  readonly made: string;
}

/** The description of the image. */
export interface ImageAbout {
  /** Such as `isthmus:0.1.0`. */
  readonly name: string;
  readonly version: string;
  /** Seconds since 1970. */
  readonly epoch: number;
  readonly path: string;
  readonly entrypoint: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
}

/** A file of the layout by its path, beside the blobs of layers. */
export type Documents = ReadonlyMap<string, string>;

const MEDIA = "application/vnd.oci.image";

/** Returns `oci-layout`, `index.json` and the blobs of configuration and manifest; the same input gives the same bytes. */
export function imageDocuments(layers: readonly Layer[], about: ImageAbout): Documents {
  const created = new Date(about.epoch * 1000).toISOString().replace(".000Z", "Z");
  const config = JSON.stringify({
    created,
    architecture: "amd64",
    os: "linux",
    config: {
      Env: [`PATH=${about.path}`],
      Entrypoint: about.entrypoint,
      WorkingDir: "/",
      Labels: about.labels,
    },
    rootfs: { type: "layers", diff_ids: layers.map(({ diffId }) => diffId) },
    history: layers.map(({ made }) => ({ created, created_by: made })),
  });
  const configBlob = blobOf(config);
  const manifest = JSON.stringify({
    schemaVersion: 2,
    mediaType: `${MEDIA}.manifest.v1+json`,
    config: { mediaType: `${MEDIA}.config.v1+json`, digest: configBlob.digest, size: configBlob.size },
    layers: layers.map(({ digest, size }) => ({ mediaType: `${MEDIA}.layer.v1.tar+gzip`, digest, size })),
  });
  const manifestBlob = blobOf(manifest);
  const index = JSON.stringify({
    schemaVersion: 2,
    mediaType: `${MEDIA}.index.v1+json`,
    manifests: [
      {
        mediaType: `${MEDIA}.manifest.v1+json`,
        digest: manifestBlob.digest,
        size: manifestBlob.size,
        platform: { architecture: "amd64", os: "linux" },
        // containerd gives an imported image the first name, other tools the second.
        annotations: {
          "io.containerd.image.name": fullName(about.name),
          "org.opencontainers.image.ref.name": about.version,
        },
      },
    ],
  });
  return new Map([
    ["oci-layout", JSON.stringify({ imageLayoutVersion: "1.0.0" })],
    ["index.json", index],
    [blobPath(configBlob.digest), config],
    [blobPath(manifestBlob.digest), manifest],
  ]);
}

/**
 * Pure: the whole name of an image, as a kubelet's runtime looks for it: `isthmus:1` of a pod is `docker.io/library/isthmus:1`. containerd gives an
 * imported image its name as it stands.
 */
export function fullName(name: string): string {
  const [first = "", ...rest] = name.split("/");
  if (rest.length === 0) return `docker.io/library/${name}`;
  return first === "localhost" || /[.:]/.test(first) ? name : `docker.io/${name}`;
}

/** The path of a blob in the layout. */
export function blobPath(digest: string): string {
  return `blobs/${digest.replace(":", "/")}`;
}

function blobOf(text: string): { readonly digest: string; readonly size: number } {
  const digest = `sha256:${createHash("sha256").update(text).digest("hex")}`;
  return { digest, size: Buffer.byteLength(text) };
}
