import type { IncomingMessage, ServerResponse } from "node:http";
import { noSuchResource } from "../errors.ts";
import type { JsonObject } from "../object/json.ts";
import { parseAccept } from "./accept.ts";
import { aggregated, coreVersions, groupList, oneGroup, resourceList } from "./discovery.ts";
import { sendJson, sendText } from "./respond.ts";
import type { ServerState } from "./state.ts";

/** The reported version, whose behaviour this server has. */
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

const PATHS = ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"];

/** Paths that are not resources: health, version, discovery, OpenAPI. Throws ApiError `NotFound`. */
export function handleMeta(state: ServerState, url: URL, request: IncomingMessage, response: ServerResponse): void {
  const path = url.pathname.replace(/\/+$/, "") || "/";
  const first = path.split("/")[1] ?? "";
  if (first === "healthz" || first === "livez" || first === "readyz") sendText(response, 200, "ok");
  else if (path === "/openapi/v2") sendOpenApiV2(state, request, response);
  else if (path === "/api" || path === "/apis") sendRoot(state, path === "/api", request, response);
  else sendFound(response, documentAt(state, path));
}

/** The document at a path that has only one form; undefined if there is none. */
function documentAt(state: ServerState, path: string): JsonObject | Buffer | undefined {
  const [, first = "", group = "", version = ""] = path.split("/");
  if (path === "/") return { paths: [...PATHS] };
  if (path === "/version") return VERSION;
  if (path === "/openapi/v3") return state.openapi.v3Index();
  if (path.startsWith("/openapi/v3/")) return state.openapi.v3(path.slice("/openapi/v3/".length));
  if (path === "/api/v1") return resourceList(state.registry, "", "v1");
  if (first !== "apis") return undefined;
  return version === "" ? oneGroup(state.registry, group) : resourceList(state.registry, group, version);
}

function sendFound(response: ServerResponse, body: JsonObject | Buffer | undefined): void {
  if (body === undefined) throw noSuchResource();
  if (!Buffer.isBuffer(body)) {
    sendJson(response, 200, body);
    return;
  }
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
    sendJson(response, 200, aggregated(state.registry, core, version), contentType);
    return;
  }
  sendJson(response, 200, core ? coreVersions() : groupList(state.registry));
}

/** The answer does not have the requested type: `@` is not a token character (RFC 9110), and Go's clients refuse a header with it. */
const PROTOBUF = "application/octet-stream";

function sendOpenApiV2(state: ServerState, request: IncomingMessage, response: ServerResponse): void {
  const protobuf = (request.headers.accept ?? "").includes("proto-openapi.spec.v2@v1.0+protobuf");
  const body = protobuf ? state.openapi.v2Protobuf() : state.openapi.v2();
  response.writeHead(200, { "content-type": protobuf ? PROTOBUF : "application/json", "content-length": body.length });
  response.end(body);
}
