import { repeatedFlag } from "#base/config";

/** `--api-server`, repeated; the client checks its values. */
export const apiServerFlag = {
  apiServer: repeatedFlag(
    "api-server",
    (text) => text,
    "a further API server of the cluster, as https://HOST:PORT, for when the kubeconfig's or the pod's is not reached; its certificate has its own name or tls-server-name",
    "URL",
  ),
};

/** A paragraph of the help of programs that also use the API servers that the cluster names. */
export const FOLLOWED_SERVERS_NOTE =
  "API servers: beside the configured ones, if they are reached without a proxy and a path prefix, the program uses those of EndpointSlice default/kubernetes, which it must be allowed to list. It keeps them in api-servers.json of /run/isthmus/PROGRAM, or of PROGRAM in the folder that $RUNTIME_DIRECTORY names.";
