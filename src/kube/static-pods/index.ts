/**
 * Static pods: the kubelet runs them from files, and the API has a mirror of each.
 *
 * Owns: the UID by which runtimes know a static pod. Does not know: the pods of a node.
 */
export { staticUid } from "./static-pods.ts";
