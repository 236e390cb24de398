/**
 * A server of HTTP/1.x for probes, scrapers and operators, whom nobody has asked who they are. What a stranger costs is bounded: connections, and of them
 * those of one address; one request of a connection at a time, whose successor is not parsed before the answer has been read; the bytes of answers that wait
 * for their readers; the time for a head, and for an answer to be read. Bodies of requests are not read: the connection ends after the answer.
 *
 * Owns: connections, heads, answers. Does not know: what paths there are.
 *
 * ```ts
 * await using endpoint = new HttpEndpoint({ answer: () => ({ body: "ok" }), onBug, log, clock });
 * const { port } = await endpoint.listen({ host: "127.0.0.1", port: 0 }, undefined);
 * ```
 */
export type { EndpointAnswer, EndpointRequest } from "./answer.ts";
export { HttpEndpoint, type HttpEndpointOptions, SOCKET_OPTIONS } from "./endpoint.ts";
export { MetricsClients } from "./metrics-clients.ts";
export { type Authorize, answerByPath, type HttpRoutes, hasHealth, hostNameOf } from "./routes.ts";
export { SharedText } from "./shared-text.ts";
