/**
 * Connections of a client through an HTTP proxy, chosen by the environment as Go's net/http and grpc-go choose it (golang.org/x/net/http/httpproxy).
 *
 * Owns: HTTPS_PROXY, HTTP_PROXY and NO_PROXY, the CONNECT of RFC 9110 section 9.3.6, its refusals. Does not know: what is spoken to the target.
 *
 * ```ts
 * const proxy = proxyFor({ protocol: "https:", hostname: "10.0.0.1", port: 6443 }, process.env);
 * const socket = proxy === undefined ? connect(target) : await connectThrough(proxy, target, { signal });
 * ```
 */
export { connectThrough } from "./connect-through.ts";
export { HttpProxyError } from "./errors.ts";
export { type HttpProxy, parseProxy, proxyFor } from "./proxy-for.ts";
