import { readFile } from "node:fs/promises";
import { describeError } from "#base/errors";
import type { Logger, Repeats } from "#base/log";
import { findObject, isApiFailure, type KubeApi, resources } from "#kube/client";
import type { ClusterSecret } from "../policy/index.ts";

/** Key of the Secret that all nodes of a cluster share. */
const SECRET_KEY = "secret";
/** Shortest secret, in bytes. As hexadecimal digits they are 16 random bytes, too many to guess (docs/spec/uplink-proxy.md#9.1.1). */
const MIN_SECRET_BYTES = 32;

/** The secret is read each minute; a failure is logged once. */
export interface SecretDeps {
  readonly log: Logger;
  readonly repeats: Repeats;
}

/**
 * A file that every node of the cluster has; a node without it does not share a secret. `unknown` with a line in the log: the file cannot be
 * read, or is shorter than 32 bytes, as after a write that failed.
 */
export async function secretFromFile(path: string, deps: SecretDeps): Promise<ClusterSecret> {
  const source: Source = { key: path, fields: { path } };
  try {
    return judge(await readFile(path), source, deps);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return { kind: "standalone" };
    return unreadable(error, source, deps);
  }
}

/**
 * A Secret `NAMESPACE/NAME` of the API server, under key `secret`; without this Secret the node does not share a secret. `unknown` with a
 * line in the log: the API server does not answer with it, it has no such key, or the value is no base64 of 32 bytes or more.
 */
export async function secretFromApi(
  api: Pick<KubeApi, "get">,
  [namespace, name]: readonly [string, string],
  deps: SecretDeps,
  signal: AbortSignal,
): Promise<ClusterSecret> {
  const source: Source = { key: `${namespace}/${name}`, fields: { namespace, name, key: SECRET_KEY } };
  try {
    const found = await findObject(api, resources.secrets, { namespace, name }, { signal });
    if (found === undefined) return { kind: "standalone" };
    const text = found.data?.[SECRET_KEY];
    return text === undefined
      ? refuse(`it has no key "${SECRET_KEY}"`, source, deps)
      : judge(decode(text), source, deps);
  } catch (error) {
    signal.throwIfAborted();
    if (!isApiFailure(error)) throw error;
    return unreadable(error, source, deps);
  }
}

/** The place of a secret: its key in {@link Repeats}, and what the log says of it. */
interface Source {
  readonly key: string;
  readonly fields: Readonly<Record<string, string>>;
}

/** `undefined` if the text is no base64. Node's decoder skips what it does not know. */
function decode(base64: string): Buffer | undefined {
  const bytes = Buffer.from(base64, "base64");
  return bytes.toString("base64") === base64 ? bytes : undefined;
}

/** Refuses a secret of no bytes, or of a few: anybody can compute what is derived from it. */
function judge(secret: Buffer | undefined, source: Source, deps: SecretDeps): ClusterSecret {
  if (secret === undefined) return refuse("it is no base64", source, deps);
  if (secret.length < MIN_SECRET_BYTES) return refuse(`it has ${secret.length} bytes`, source, deps);
  deps.repeats.forget(source.key);
  return { kind: "shared", secret };
}

function refuse(found: string, source: Source, { log, repeats }: SecretDeps): ClusterSecret {
  const error = `${found}: give it at least ${MIN_SECRET_BYTES} random bytes, the same on all nodes, as from "openssl rand -hex 32"`;
  if (repeats.isNew(source.key, error)) {
    log.error("cannot use the cluster's secret; existing secrets stay", { ...source.fields, error });
  }
  return { kind: "unknown" };
}

function unreadable(cause: unknown, { key, fields }: Source, { log, repeats }: SecretDeps): ClusterSecret {
  const error = describeError(cause);
  if (repeats.isNew(key, error))
    log.warn("cannot read the cluster's secret; existing secrets stay", { ...fields, error });
  return { kind: "unknown" };
}
