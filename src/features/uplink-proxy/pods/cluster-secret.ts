import { readFile } from "node:fs/promises";
import { describeError } from "#base/errors";
import type { Logger, Repeats } from "#base/log";
import { findObject, isKubeError, type KubeApi, resources } from "#kube/client";
import type { ClusterSecret } from "../policy/index.ts";

/** Key of the Secret that all nodes of a cluster share. */
const SECRET_KEY = "secret";

/** The secret is read each minute; a failure is logged once. */
export interface SecretDeps {
  readonly log: Logger;
  readonly repeats: Repeats;
}

/** A file that every node of the cluster has; a node without it does not share a secret. */
export async function secretFromFile(path: string, { log, repeats }: SecretDeps): Promise<ClusterSecret> {
  try {
    return { kind: "shared", secret: await readFile(path) };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return { kind: "standalone" };
    const text = describeError(error);
    if (repeats.isNew(path, text))
      log.warn("cannot read the cluster's secret; existing secrets stay", { path, error: text });
    return { kind: "unknown" };
  }
}

/** A Secret `NAMESPACE/NAME` of the API server, under key `secret`; without this Secret the node does not share a secret. */
export async function secretFromApi(
  api: Pick<KubeApi, "get">,
  [namespace, name]: readonly [string, string],
  { log, repeats }: SecretDeps,
  signal: AbortSignal,
): Promise<ClusterSecret> {
  try {
    const found = await findObject(api, resources.secrets, { namespace, name }, { signal });
    const text = found?.data?.[SECRET_KEY];
    return text === undefined ? { kind: "standalone" } : { kind: "shared", secret: Buffer.from(text, "base64") };
  } catch (error) {
    signal.throwIfAborted();
    if (!isKubeError(error)) throw error;
    const text = describeError(error);
    if (repeats.isNew(`${namespace}/${name}`, text)) {
      log.warn("cannot read the cluster's secret; existing secrets stay", { namespace, name, error: text });
    }
    return { kind: "unknown" };
  }
}
