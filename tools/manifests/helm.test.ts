/** The chart, and the templates of our tests, by Helm itself. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  accessSync,
  constants,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { parseAllDocuments } from "yaml";
import { RENDERED, RENDERED_WITH } from "./testing/rendered.ts";

const deploy = join(import.meta.dirname, "../../deploy");
const helm = join(process.env["ISTHMUS_PEERS"] ?? "/nonexistent", "helm");

function isThere(): boolean {
  try {
    accessSync(helm, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

const skip = isThere() ? false : "package: ISTHMUS_PEERS names no folder with helm";

function template(chart: string, ...more: readonly string[]): string {
  const args = ["template", "isthmus", chart, "--namespace", "kube-system", ...more];
  return execFileSync(helm, args, { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
}

/** The objects of a text by kind and name, without CRDs, which Helm has in a folder of their own. */
function objectsOf(text: string): Map<string, unknown> {
  const documents = parseAllDocuments(text).map((one) => {
    assert.deepEqual(one.errors, []);
    return one.toJS() as { readonly kind: string; readonly metadata: { readonly name: string } } | null;
  });
  return new Map(
    documents.flatMap((one) =>
      one === null || one.kind === "CustomResourceDefinition"
        ? []
        : [[`${one.kind} ${one.metadata.name}`, one] as const],
    ),
  );
}

test("helm: it renders each variant of the chart as our files have it", { skip }, () => {
  const crds = new Set(readdirSync(join(deploy, "crds")).map((file) => file.replace(/^(.*)_(.*)\.yaml$/, "$2.$1")));
  const withCrds = template(join(deploy, "chart"), "--include-crds");
  assert.deepEqual(new Set(Array.from(withCrds.matchAll(/^ {2}name: (\S+)$/gm), ([, name = ""]) => name)), crds);
  for (const file of readdirSync(join(deploy, "variants"))) {
    const ours = objectsOf(readFileSync(join(deploy, file.replace(".values.yaml", ".yaml")), "utf8"));
    assert.ok(ours.size > 0);
    assert.deepEqual(objectsOf(template(join(deploy, "chart"), "-f", join(deploy, "variants", file))), ours, file);
  }
});

test("helm: it refuses a value that the schema does not know, and another namespace", { skip }, (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-helm-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "values.yaml");
  writeFileSync(file, "pods: { enabled: true, compatCalcio: true }\n");
  assert.throws(() => template(join(deploy, "chart"), "-f", file), /compatCalcio/);
  assert.throws(() => template(join(deploy, "chart"), "--namespace", "default"), /use --namespace kube-system/);
});

test("helm: it renders the templates of our tests as they say", { skip }, (t) => {
  const folder = mkdtempSync(join(tmpdir(), "isthmus-helm-"));
  t.after(() => rmSync(folder, { recursive: true }));
  mkdirSync(join(folder, "templates"));
  writeFileSync(join(folder, "Chart.yaml"), "apiVersion: v2\nname: t\nversion: 0.1.0\n");
  writeFileSync(join(folder, "values.yaml"), JSON.stringify(RENDERED_WITH));
  for (const [at, [text]] of RENDERED.entries()) {
    // Names of one chart are of all its files.
    writeFileSync(join(folder, `templates/t${at}.txt`), `<${at}:${text.replaceAll('"f"', `"f${at}"`)}:${at}>`);
  }
  const made = template(folder);
  for (const [at, [text, expected]] of RENDERED.entries()) {
    const [, own] = made.split(`<${at}:`);
    assert.equal(own?.split(`:${at}>`)[0], expected, text);
  }
});
