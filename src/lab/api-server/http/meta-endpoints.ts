import type { IncomingMessage, ServerResponse } from "node:http";
import { noSuchResource } from "../errors.ts";
import type { JsonObject } from "../object/json.ts";
import { parseAccept } from "./accept.ts";
import { aggregated, coreVersions, groupList, oneGroup, resourceList } from "./discovery.ts";
import { sendJson, sendText } from "./respond.ts";
import type { ServerState } from "./state.ts";

/** The version this server says it is: what its behaviour follows. */
const VERSION: JsonObject = {
  major: "1",
  minor: "30",
  gitVersion: "v1.30.0+isthmus-lab",
  gitCommit: "0000000000000000000000000000000000000000",
  gitTreeState: "clean",
  buildDate: "2026-01-01T00:00:00Z",
  goVersion: "none",
  compiler: "none",
  platform: "linux/amd64",
};

/** Paths that are no resource: health, version, discovery, OpenAPI. Throws ApiError `NotFound`. */
export function handleMeta(state: ServerState, url: URL, request: IncomingMessage, response: ServerResponse): void {
  const path = url.pathname.replace(/\/+$/, "") || "/";
  const [, first = "", group = "", version = ""] = path.split("/");
  if (first === "healthz" || first === "livez" || first === "readyz") return sendText(response, 200, "ok");
  if (path === "/") return sendJson(response, 200, { paths: ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"] });
  if (path === "/version") return sendJson(response, 200, VERSION);
  if (path === "/openapi/v2") return sendOpenApiV2(state, request, response);
  if (path === "/openapi/v3") return sendJson(response, 200, state.openapi.v3Index());
  if (path.startsWith("/openapi/v3/")) return sendFound(response, state.openapi.v3(path.slice("/openapi/v3/".length)));
  if (path === "/api" || path === "/apis") return sendRoot(state, path === "/api", request, response);
  if (path === "/api/v1") return sendFound(response, resourceList(state.registry, "", "v1"));
  if (first === "apis" && version === "") return sendFound(response, oneGroup(state.registry, group));
  if (first === "apis") return sendFound(response, resourceList(state.registry, group, version));
  throw noSuchResource();
}

function sendFound(response: ServerResponse, body: JsonObject | Buffer | undefined): void {
  if (body === undefined) throw noSuchResource();
  if (!Buffer.isBuffer(body)) return sendJson(response, 200, body);
  response.writeHead(200, { "content-type": "application/json", "content-length": body.length });
  response.end(body);
}

function sendRoot(state: ServerState, core: boolean, request: IncomingMessage, response: ServerResponse): void {
  for (const { type, params } of parseAccept(request.headers.accept)) {
    const version = params.get("v") ?? "";
    if (type !== "application/json") continue;
    if (params.get("as") === undefined) break;
    if (params.get("as") !== "APIGroupDiscoveryList" || (version !== "v2" && version !== "v2beta1")) continue;
    const contentType = `application/json;g=apidiscovery.k8s.io;v=${version};as=APIGroupDiscoveryList`;
    return sendJson(response, 200, aggregated(state.registry, core, version), contentType);
  }
  sendJson(response, 200, core ? coreVersions() : groupList(state.registry));
}

/** Not the type that was asked for: `@` is no token character (RFC 9110), and Go's clients refuse a header with it. */
const PROTOBUF = "application/octet-stream";

function sendOpenApiV2(state: ServerState, request: IncomingMessage, response: ServerResponse): void {
  const protobuf = (request.headers.accept ?? "").includes("proto-openapi.spec.v2@v1.0+protobuf");
  const body = protobuf ? state.openapi.v2Protobuf() : state.openapi.v2();
  response.writeHead(200, { "content-type": protobuf ? PROTOBUF : "application/json", "content-length": body.length });
  response.end(body);
}
