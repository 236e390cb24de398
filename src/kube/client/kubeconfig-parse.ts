/** This file is loaded only to read a kubeconfig: a pod has no kubeconfig, and a YAML parser takes two MiB of memory. */
import { parseYaml, YamlError } from "#base/yaml";
import { KubeConfigError } from "./errors.ts";
import { Fields, type KubeConfigParts } from "./kubeconfig.ts";
import { isRecord } from "./response.ts";

/** Parses the text of one kubeconfig. Pure. Throws {@link KubeConfigError} `invalid`. */
export function parseKubeConfig(file: string, text: string): KubeConfigParts {
  const root = new Fields(file, "", mappingOf(file, text));
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

function mappingOf(file: string, text: string): Record<string, unknown> {
  const value = documentOf(file, text);
  // One of several files may be empty, as kubectl leaves it.
  if (value === null || value === undefined) return {};
  if (!isRecord(value)) {
    throw new KubeConfigError("invalid", `kubeconfig ${file} must be a mapping with clusters, users and contexts`);
  }
  return value;
}

function documentOf(file: string, text: string): unknown {
  try {
    return parseYaml(text, { aliases: true, uniqueKeys: false, version: "1.1" }).value;
  } catch (error) {
    if (!(error instanceof YamlError)) throw error;
    // The YAML error is not passed as the cause: a log that lists causes would show its text twice.
    throw new KubeConfigError("invalid", `kubeconfig ${file} is not YAML: ${error.message}`);
  }
}
