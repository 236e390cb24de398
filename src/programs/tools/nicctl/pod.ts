import { ExpectedError } from "#base/errors";
import { findObject, isKubeError, type KubeApi, type Namespace, type Pod, resources } from "#kube/client";
import { type NicClaim, nicResources } from "#kube/nic";

/** `no-pod`: it does not exist. `no-nics`: it has none of a VPC. */
export type NicctlErrorCode = "no-pod" | "no-nics";

/** A command cannot do its work for a pod. */
export class NicctlError extends ExpectedError<NicctlErrorCode> {
  override readonly name = "NicctlError";
}

/** The objects that a command reads from the API server. */
export interface CommandOptions {
  readonly signal: AbortSignal;
}

/** A pod that a user has named. */
export interface PodRef {
  readonly namespace: string;
  readonly name: string;
}

/** Reads `NAME` or `NAMESPACE/NAME`. Pure. */
export function parsePodRef(word: string, namespace = "default"): PodRef {
  const [first = "", ...rest] = word.split("/");
  return rest.length === 0 ? { namespace, name: first } : { namespace: first, name: rest.join("/") };
}

/** A pod and its claim. Rejects with `KubeError`, and with {@link NicctlError} `no-pod`. */
export async function readPod(
  api: KubeApi,
  ref: PodRef,
  options: CommandOptions,
): Promise<{ readonly pod: Pod; readonly claim: NicClaim | undefined }> {
  const pod = await findObject(api, resources.pods, ref, options);
  if (pod === undefined) throw new NicctlError("no-pod", await goneText(api, ref, options));
  const { namespace } = ref;
  const claim = await findObject(api, nicResources.nicClaims, { namespace, name: pod.metadata.uid }, options);
  return { pod, claim };
}

/** A pod that is gone may have a claim whose ports are not released yet. */
async function goneText(api: KubeApi, { namespace, name }: PodRef, options: CommandOptions): Promise<string> {
  const { items } = await api.listAll(nicResources.nicClaims, { ...options, namespace });
  const left = items.filter(({ spec }) => spec.podName === name);
  const text = `there is no pod ${namespace}/${name}`;
  if (left.length === 0) return text;
  const claims = left.map(({ metadata, status }) => `${metadata.name} (${status?.phase ?? "no phase"})`).join(", ");
  return `${text}, only NicClaims of pods of this name whose ports are not released yet: ${claims}`;
}

/** All namespaces, by name: they can name the VPC of their pods. Who may not list them gets none. Rejects with `KubeError`. */
export async function readNamespaces(api: KubeApi, options: CommandOptions): Promise<ReadonlyMap<string, Namespace>> {
  try {
    const { items } = await api.listAll(resources.namespaces, options);
    return new Map(items.map((one) => [one.metadata.name, one]));
  } catch (error) {
    if (!isKubeError(error, "forbidden")) throw error;
    return new Map();
  }
}
