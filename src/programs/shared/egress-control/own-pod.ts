import type { AbortOptions } from "#base/async";
import { ConfigError } from "#base/config";
import type { RouterSettings } from "#features/egress-controller";
import { type KubeApi, KubeError, type ObjectRef, type Pod, resources } from "#kube/client";

/** The image of a pod's first container, and how it is pulled. */
type OwnImage = Pick<RouterSettings, "image" | "pullPolicy" | "pullSecrets">;

/** The pod that a controller runs in, by its environment: `COIL_POD_NAMESPACE` and `COIL_POD_NAME`. */
export class OwnPod {
  readonly #ref: ObjectRef | undefined;
  readonly #missing: readonly string[];
  #pod: Pod | undefined;

  constructor(env: NodeJS.ProcessEnv) {
    const { COIL_POD_NAMESPACE: namespace = "", COIL_POD_NAME: name = "" } = env;
    const given = { COIL_POD_NAMESPACE: namespace, COIL_POD_NAME: name };
    this.#missing = Object.entries(given).flatMap(([key, value]) => (value === "" ? [key] : []));
    this.#ref = this.#missing.length === 0 ? { namespace, name } : undefined;
  }

  /** True if the environment names the pod. */
  get isNamed(): boolean {
    return this.#ref !== undefined;
  }

  /** Throws `ConfigError` if the environment does not name the pod. */
  requireNamed(): void {
    if (this.isNamed) return;
    throw new ConfigError(
      "invalid-flags",
      this.#missing.map(
        (key) => `the environment variable ${key} is missing; set it from this pod's metadata, or give --image`,
      ),
    );
  }

  /** Reads the pod. Rejects with `KubeError` and `ConfigError`. */
  async #read(api: KubeApi, options: AbortOptions): Promise<Pod> {
    if (this.#ref === undefined) this.requireNamed();
    this.#pod = await api.get(resources.pods, this.#ref ?? { name: "" }, options);
    return this.#pod;
  }

  /** Reads the pod's addresses, for {@link isDualStack}. Rejects with `KubeError`, also as long as the pod has none, and `ConfigError`. */
  async readAddresses(api: KubeApi, options: AbortOptions): Promise<void> {
    const { metadata, status } = await this.#read(api, options);
    if ((status?.podIPs ?? []).length > 0) return;
    throw new KubeError("not-found", `Pod ${metadata.namespace}/${metadata.name} has no addresses yet`);
  }

  /** The image of the first container, and how it is pulled, which do not change. Rejects with `KubeError` and `ConfigError`. */
  async image(api: KubeApi, options: AbortOptions): Promise<OwnImage> {
    const { metadata, spec } = this.#pod ?? (await this.#read(api, options));
    const { image = "", imagePullPolicy: pullPolicy } = spec?.containers[0] ?? {};
    if (image === "")
      throw new ConfigError("invalid-flags", [
        `Pod ${metadata.namespace}/${metadata.name} names no image; give --image`,
      ]);
    const names = (spec?.imagePullSecrets ?? []).flatMap(({ name = "" }) => (name === "" ? [] : [name]));
    return {
      image,
      ...(pullPolicy === undefined || pullPolicy === defaultPullPolicy(image) ? {} : { pullPolicy }),
      pullSecrets: [...new Set(names)],
    };
  }

  /** True if the pod has addresses of both families. False until {@link readAddresses} has succeeded. */
  get isDualStack(): boolean {
    const families = (this.#pod?.status?.podIPs ?? []).map(({ ip = "" }) => ip.includes(":"));
    return new Set(families).size === 2;
  }
}

/** The policy that an API server gives a container without one. Pure. */
export function defaultPullPolicy(image: string): "Always" | "IfNotPresent" {
  const [name = "", digest] = image.split("@");
  const last = name.slice(name.lastIndexOf("/") + 1);
  const colon = last.indexOf(":");
  const tag = colon >= 0 ? last.slice(colon + 1) : digest === undefined ? "latest" : "";
  return tag === "latest" ? "Always" : "IfNotPresent";
}
