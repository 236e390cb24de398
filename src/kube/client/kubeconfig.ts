import { dirname, isAbsolute, join } from "node:path";
import { KubeConfigError } from "./errors.ts";
import { isRecord } from "./response.ts";

/** The maximum size of a kubeconfig file, in bytes. */
export const MAX_KUBECONFIG_BYTES = 4 * 1024 * 1024;

/** Reads the fields of one mapping of a kubeconfig, and knows the mapping's place for messages. */
export class Fields {
  readonly file: string;
  readonly at: string;
  readonly #values: Readonly<Record<string, unknown>>;

  constructor(file: string, at: string, values: Readonly<Record<string, unknown>>) {
    this.file = file;
    this.at = at;
    this.#values = values;
  }

  /** The text of a field; an empty text counts as absent, as in Go's decoder. Throws `invalid` for another type. */
  string(name: string): string | undefined {
    const value = this.#values[name];
    if (value === undefined || value === null || value === "") return undefined;
    if (typeof value !== "string") throw this.invalid(name, "must be a text");
    return value;
  }

  boolean(name: string): boolean {
    const value = this.#values[name];
    if (value === undefined || value === null) return false;
    if (typeof value !== "boolean") throw this.invalid(name, "must be true or false");
    return value;
  }

  object(name: string): Fields | undefined {
    const value = this.#values[name];
    if (value === undefined || value === null) return undefined;
    if (!isRecord(value)) throw this.invalid(name, "must be a mapping");
    return new Fields(this.file, this.path(name), value);
  }

  list(name: string): readonly unknown[] {
    const value = this.#values[name];
    if (value === undefined || value === null) return [];
    if (!Array.isArray(value)) throw this.invalid(name, "must be a list");
    return value;
  }

  strings(name: string): string[] {
    return this.list(name).map((value, index) => {
      if (typeof value !== "string") throw this.invalid(`${name}[${index}]`, "must be a text");
      return value;
    });
  }

  objects(name: string): Fields[] {
    return this.list(name).map((value, index) => {
      if (!isRecord(value)) throw this.invalid(`${name}[${index}]`, "must be a mapping");
      return new Fields(this.file, `${this.path(name)}[${index}]`, value);
    });
  }

  /** Returns true if a field says something: an empty text, list or mapping counts as absent, as in Go's decoder. */
  has(name: string): boolean {
    const value = this.#values[name];
    if (value === undefined || value === null || value === "") return false;
    return typeof value !== "object" || Object.keys(value).length > 0;
  }

  /** A field as it is. */
  value(name: string): unknown {
    return this.#values[name];
  }

  get names(): string[] {
    return Object.keys(this.#values);
  }

  /** The file name in a field, relative to the kubeconfig's folder. */
  filePath(name: string): string | undefined {
    const path = this.string(name);
    return path === undefined || isAbsolute(path) ? path : join(dirname(this.file), path);
  }

  path(name: string): string {
    return this.at === "" ? name : `${this.at}.${name}`;
  }

  invalid(name: string, why: string): KubeConfigError {
    return new KubeConfigError("invalid", `kubeconfig ${this.file}: ${this.path(name)} ${why}`);
  }
}

/** The named parts of one or more kubeconfig files. */
export interface KubeConfigParts {
  readonly source: string;
  readonly currentContext: string | undefined;
  readonly clusters: ReadonlyMap<string, Fields>;
  readonly users: ReadonlyMap<string, Fields>;
  readonly contexts: ReadonlyMap<string, Fields>;
}

/** Merges files as kubectl does: the first file that has an entry of a name wins. */
export function mergeKubeConfigs(parts: readonly KubeConfigParts[]): KubeConfigParts {
  const merge = (pick: (part: KubeConfigParts) => ReadonlyMap<string, Fields>): Map<string, Fields> => {
    const merged = new Map<string, Fields>();
    for (const part of parts) for (const [name, value] of pick(part)) if (!merged.has(name)) merged.set(name, value);
    return merged;
  };
  return {
    source: parts.map((part) => part.source).join(":"),
    currentContext: parts.find((part) => part.currentContext !== undefined)?.currentContext,
    clusters: merge((part) => part.clusters),
    users: merge((part) => part.users),
    contexts: merge((part) => part.contexts),
  };
}
