/** A module of its own, loaded by who reads a file: within a pod there is none, and a YAML parser takes two MiB. */
import { parseDocument } from "yaml";
import { describeError } from "#base/errors";
import { KubeConfigError } from "./errors.ts";
import { Fields, type KubeConfigParts } from "./kubeconfig.ts";
import { isRecord } from "./response.ts";

/** Parses the text of one kubeconfig. Pure. Throws {@link KubeConfigError} `invalid`. */
export function parseKubeConfig(file: string, text: string): KubeConfigParts {
  const root = new Fields(file, "", parseYaml(file, text));
  const kind = root.string("kind");
  if (kind !== undefined && kind !== "Config") throw root.invalid("kind", `is "${kind}", not "Config"`);
  return {
    source: file,
    currentContext: root.string("current-context"),
    clusters: named(root, "clusters", "cluster"),
    users: named(root, "users", "user"),
    contexts: named(root, "contexts", "context"),
  };
}

function named(root: Fields, list: string, field: string): Map<string, Fields> {
  const found = new Map<string, Fields>();
  for (const entry of root.objects(list)) {
    const name = entry.string("name");
    if (name === undefined) throw entry.invalid("name", "is missing");
    const value = entry.object(field) ?? new Fields(root.file, entry.path(field), {});
    if (!found.has(name)) found.set(name, value);
  }
  return found;
}

function parseYaml(file: string, text: string): Record<string, unknown> {
  let value: unknown;
  try {
    const document = parseDocument(text, { logLevel: "silent", uniqueKeys: false });
    const error = document.errors[0];
    // Its first line says what and where, the others show the text. Not as the cause: whoever tells causes would tell both.
    if (error !== undefined) throw notYaml(file, error.message.split("\n", 1)[0]?.replace(/:$/, "") ?? "");
    value = document.toJS({ maxAliasCount: 100 });
  } catch (cause) {
    if (cause instanceof KubeConfigError) throw cause;
    // The parser has several error classes; whatever it throws, the text is not a kubeconfig.
    throw notYaml(file, describeError(cause), { cause });
  }
  if (value === null || value === undefined) throw new KubeConfigError("invalid", `kubeconfig ${file} is empty`);
  if (!isRecord(value)) {
    throw new KubeConfigError("invalid", `kubeconfig ${file} must be a mapping with clusters, users and contexts`);
  }
  return value;
}

function notYaml(file: string, why: string, options: { readonly cause?: unknown } = {}): KubeConfigError {
  return new KubeConfigError("invalid", `kubeconfig ${file} is not YAML: ${why}`, options);
}
