/** The annotation of a static pod's mirror with the UID that runtimes are told of the pod (kubelet's `ConfigHashAnnotationKey`). */
const STATIC_POD_UID = "kubernetes.io/config.hash";

/**
 * The UID that a runtime tells of a pod, if that is not the Pod's own: the kubelet runs a static pod by the hash of its file, and the Pod of
 * the API is its mirror, with a UID of its own.
 */
export function staticUid(annotations: Readonly<Record<string, string>> | undefined): string | undefined {
  return annotations?.[STATIC_POD_UID];
}
