/**
 * The API servers of a cluster as the cluster itself names them: the endpoints of EndpointSlice `default/kubernetes`, which each kube-apiserver keeps up to date.
 *
 * Owns: reading that slice, the file that keeps its addresses over a restart of the program, the pace of both. Does not know: how a server is reached and verified, which is
 * `KubeClient.learn` of `#kube/client`; which programs follow it.
 *
 * ```ts
 * const follower = new ServerFollower({ api, learn: (servers) => api.learn(servers), log, clock }, { connection: api.connection, path });
 * await follower.run({ signal });
 * ```
 */
export { mayFollow, ServerFollower } from "./server-follower.ts";
