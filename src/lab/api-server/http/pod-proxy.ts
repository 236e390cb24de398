import { type IncomingMessage, request as requestHttp } from "node:http";
import type { Duplex } from "node:stream";
import { describeError } from "#base/errors";
import { ApiError, badRequest } from "../errors.ts";
import { asArray, asObject, asString, at } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import { type Call, methodNotAllowed } from "./call.ts";
import type { KubeletPlace } from "./kubelet-request.ts";
import type { ResourceRequest } from "./request-info.ts";
import type { ServerState } from "./state.ts";

/** Headers that are between two ends of one connection (RFC 9110 section 7.6.1). */
const OWN_HEADERS = new Set([
  "connection",
  "keep-alive",
  "transfer-encoding",
  "upgrade",
  "proxy-authenticate",
  "trailer",
]);
/** The time in which the pod must answer, in milliseconds. */
const ANSWER_MS = 30_000;

/** The pod that a name of `pods/proxy` means: `[SCHEME:]NAME[:PORT]`. Pure. Throws ApiError `BadRequest`. */
export function proxiedPod(name: string): { readonly name: string; readonly port: string } {
  const parts = name.split(":");
  const scheme = parts.length === 3 ? parts.shift() : "";
  if (parts.length > 2 || (scheme !== "" && scheme !== "http"))
    throw badRequest(`invalid pod request ${JSON.stringify(name)}: the lab's API server has only http`);
  return { name: parts[0] ?? "", port: parts[1] ?? "" };
}

/** The address of a pod's port: a number, the name of a port of a container, or the first port. Pure. Throws ApiError `BadRequest`. */
export function podPlace(pod: KubeObject, port: string): KubeletPlace {
  const host = asString(at(pod, "status", "podIP"));
  if (host === "") throw new ApiError("ServiceUnavailable", `pod ${pod.metadata.name} has no address`);
  if (/^\d+$/.test(port)) return { host, port: Number(port) };
  const ports = asArray(at(pod, "spec", "containers")).flatMap((one) => asArray(asObject(one)["ports"]).map(asObject));
  const found = port === "" ? ports[0] : ports.find((one) => one["name"] === port);
  const number = found?.["containerPort"];
  if (typeof number !== "number") throw badRequest(`no port ${JSON.stringify(port)} in pod ${pod.metadata.name}`);
  return { host, port: number };
}

/** Relays GET requests of `pods/proxy` to the pod, by plain HTTP. Rejects with ApiError. */
export async function proxyToPod(state: ServerState, parsed: ResourceRequest, call: Call): Promise<void> {
  if (parsed.verb !== "get") throw methodNotAllowed(parsed.resource, parsed.verb);
  const access = state.kubelets;
  if (access === undefined)
    throw new ApiError("NotImplemented", "pods/proxy is not served: this API server has no access to its nodes");
  const { name, port } = proxiedPod(parsed.name);
  const place = podPlace(state.objects.get(parsed.resource, parsed.namespace, name).object, port);
  const path = /\/proxy(\/.*)?$/.exec(call.url.pathname)?.[1] ?? "/";
  const answer = await ask(access.connect, place, path + call.url.search);
  const headers = Object.entries(answer.headers).filter(([header]) => !OWN_HEADERS.has(header));
  call.response.writeHead(answer.statusCode ?? 502, Object.fromEntries(headers));
  for await (const chunk of answer) call.response.write(chunk);
  call.response.end();
}

async function ask(
  connect: (place: KubeletPlace) => Promise<Duplex>,
  place: KubeletPlace,
  path: string,
): Promise<IncomingMessage> {
  const failed = (error: unknown): ApiError => {
    const where = `${place.host}:${place.port}`;
    return new ApiError("ServiceUnavailable", `error trying to reach service: ${where}: ${describeError(error)}`, {
      cause: error,
    });
  };
  const socket = await connect(place).catch((error: unknown) => Promise.reject(failed(error)));
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const sent = requestHttp(
    {
      host: place.host,
      port: place.port,
      path,
      headers: { connection: "close" },
      createConnection: () => socket,
      timeout: ANSWER_MS,
    },
    resolve,
  );
  sent.once("timeout", () => sent.destroy(new Error(`no answer in ${ANSWER_MS} ms`)));
  sent.once("error", (error) => reject(failed(error)));
  sent.once("close", () => socket.destroy());
  sent.end();
  return promise;
}
