import assert from "node:assert/strict";
import { test } from "node:test";
import { anchorsOf, linksOf, referencesOf } from "./check-references.ts";

test("anchorsOf: explicit anchors and slugs of headings, numbered where one repeats, none of code", () => {
  const page = '# Node & health\n\n## <a id="5.1"></a>5.1 Frames\n\n## Flags\n\n## Flags\n\n```\n# no heading\n```\n';
  assert.deepEqual([...anchorsOf(page)], ["5.1", "node--health", "51-frames", "flags", "flags-1"]);
});

test("linksOf: relative links only, none of code", () => {
  const page = "[a](b.md#c) [web](https://example.org/) `[x](y.md)` [own](#here)\n```\n[z](z.md)\n```\n";
  assert.deepEqual(linksOf(page), ["b.md#c", "#here"]);
});

test("referencesOf: a file alone, with an anchor, and with several, over the end of a line too", () => {
  const code = [
    "/** See docs/design/kube.md. */",
    "// (docs/spec/tunnel.md#5.1, #6 and",
    "// #K7)",
    "/* docs/spec/service-proxy.md#2.1 to #2.4 */",
  ].join("\n");
  assert.deepEqual(referencesOf(code), [
    "docs/design/kube.md",
    "docs/spec/tunnel.md#5.1",
    "docs/spec/tunnel.md#6",
    "docs/spec/tunnel.md#K7",
    "docs/spec/service-proxy.md#2.1",
    "docs/spec/service-proxy.md#2.4",
  ]);
});
