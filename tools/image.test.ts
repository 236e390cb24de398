import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { blobPath, fullName, imageDocuments, type Layer } from "./image/oci.ts";
import { type Part, spdxDocument } from "./image/sbom.ts";

const hex = (digit: string): string => digit.repeat(64);
const layer = (digit: string): Layer => ({
  digest: `sha256:${hex(digit)}`,
  diffId: `sha256:${hex("f")}`,
  size: 7,
  made: `layer ${digit}`,
});
const ABOUT = {
  name: "isthmus:1.2.3",
  version: "1.2.3",
  epoch: 1_700_000_000,
  path: "/bin",
  entrypoint: ["/bin/isthmus"],
  labels: { a: "b" },
};

test("fullName: a name without a registry is one of docker.io, as runtimes read it in a pod", () => {
  const names = ["isthmus:1", "me/isthmus:1", "localhost/isthmus:1", "registry.example/isthmus:1", "host:5000/a/b:1"];
  assert.deepEqual(names.map(fullName), ["docker.io/library/isthmus:1", "docker.io/me/isthmus:1", ...names.slice(2)]);
});

test("imageDocuments: index, manifest and configuration name each other by digest and size, and the layers in their order", () => {
  const documents = imageDocuments([layer("1"), layer("2")], ABOUT);
  const read = (path: string) => JSON.parse(documents.get(path) ?? assert.fail(path)) as Record<string, unknown>;
  assert.deepEqual(read("oci-layout"), { imageLayoutVersion: "1.0.0" });
  const [found] = read("index.json")["manifests"] as readonly [
    { readonly digest: string; readonly size: number; readonly annotations: Record<string, string> },
  ];
  assert.equal(found.annotations["io.containerd.image.name"], "docker.io/library/isthmus:1.2.3");
  assert.equal(documents.get(blobPath(found.digest))?.length, found.size);
  const manifest = read(blobPath(found.digest));
  const { digest, size } = manifest["config"] as { readonly digest: string; readonly size: number };
  assert.equal(documents.get(blobPath(digest))?.length, size);
  assert.deepEqual(
    (manifest["layers"] as readonly Layer[]).map((one) => one.digest),
    [layer("1").digest, layer("2").digest],
  );
  const config = read(blobPath(digest));
  assert.equal(config["created"], "2023-11-14T22:13:20Z");
  assert.deepEqual(config["rootfs"], { type: "layers", diff_ids: [hex("f"), hex("f")].map((one) => `sha256:${one}`) });
  assert.deepEqual(imageDocuments([layer("1"), layer("2")], ABOUT), documents);
});

test("spdxDocument: any parts, in any order, give one document with ids of their own; another part gives another namespace", () => {
  const part = fc.record({
    name: fc.string(),
    version: fc.string(),
    purl: fc.string({ minLength: 1 }).map((text) => `pkg:generic/${text}`),
  });
  const subject = { name: "isthmus", version: "1.2.3", license: "Apache-2.0", epoch: 0 };
  fc.assert(
    fc.property(fc.uniqueArray(part, { selector: ({ purl }) => purl, maxLength: 10 }), (parts: readonly Part[]) => {
      const text = spdxDocument(parts, subject);
      assert.equal(spdxDocument([...parts].reverse(), subject), text);
      const { packages, relationships, documentNamespace } = JSON.parse(text) as {
        readonly packages: readonly { readonly SPDXID: string }[];
        readonly relationships: readonly object[];
        readonly documentNamespace: string;
      };
      const ids = packages.map(({ SPDXID }) => SPDXID);
      assert.equal(new Set(ids).size, parts.length + 1);
      for (const id of ids) assert.match(id, /^SPDXRef-[A-Za-z0-9.-]+$/);
      assert.equal(relationships.length, parts.length + 1);
      const other = spdxDocument([...parts, { name: "x", version: "1", purl: "pkg:other/x" }], subject);
      assert.ok(!other.includes(documentNamespace));
    }),
  );
});
