import type { IncomingMessage, ServerResponse } from "node:http";
import { stringify } from "yaml";
import { ApiError } from "../errors.ts";
import type { JsonObject } from "../object/json.ts";
import type { KubeObject } from "../object/meta.ts";
import type { ResourceDef } from "../resources/types.ts";
import { partialMetadata, toTable } from "../table/table.ts";
import type { Form } from "./accept.ts";

/** Sends a JSON body. */
export function sendJson(
  response: ServerResponse,
  status: number,
  body: JsonObject,
  contentType = "application/json",
): void {
  const bytes = Buffer.from(JSON.stringify(body));
  response.writeHead(status, { "content-type": contentType, "content-length": bytes.length });
  response.end(bytes);
}

/** Sends text. */
export function sendText(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, {
    "content-type": "text/plain; charset=utf-8",
    "content-length": Buffer.byteLength(text),
  });
  response.end(text);
}

/** Sends an error's Status. If the response has begun, its connection is closed instead. */
export function sendError(response: ServerResponse, error: ApiError): void {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  const retry = error.details?.retryAfterSeconds;
  if (retry !== undefined) response.setHeader("retry-after", String(retry));
  if (error.code === "Unauthorized") response.setHeader("www-authenticate", 'Bearer realm="isthmus-lab"');
  sendJson(response, error.httpStatus, error.toStatus());
}

/** Sends one object in the form that the client requested. */
export function sendObject(
  response: ServerResponse,
  status: number,
  resource: ResourceDef,
  object: KubeObject,
  form: Form,
  nowMs: number,
): void {
  switch (form.as) {
    case "object": {
      if (!form.yaml) {
        sendJson(response, status, object);
        return;
      }
      const text = stringify(object);
      response.writeHead(status, { "content-type": "application/yaml", "content-length": Buffer.byteLength(text) });
      response.end(text);
      return;
    }
    case "metadata":
      sendJson(response, status, partialMetadata(object, form.version));
      return;
    case "table": {
      const { resourceVersion = "" } = object.metadata;
      sendJson(response, status, toTable(resource.columns, [object], { resourceVersion }, form.table, nowMs));
      return;
    }
  }
}

/** Adds a Warning header (RFC 9110 section 5.5 text, code 299), which kubectl prints. */
export function addWarning(response: ServerResponse, text: string): void {
  if (response.headersSent) return;
  const clean = text.replace(/[^\x20-\x7e]/g, "?").replace(/["\\]/g, (char) => `\\${char}`);
  response.appendHeader("warning", `299 - "${clean.slice(0, 1000)}"`);
}

/** Reads a body of at most `limit` bytes. Throws ApiError `RequestEntityTooLarge`, or `BadRequest` if the client disconnects. */
export function readBody(request: IncomingMessage, limit: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    request.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size <= limit) chunks.push(chunk);
    });
    // The rest of a body that is too long is read and dropped, so that the answer reaches the client.
    request.on("end", () => {
      if (size <= limit) resolve(Buffer.concat(chunks));
      else reject(new ApiError("RequestEntityTooLarge", `Request entity too large: limit is ${limit}`));
    });
    request.on("error", (cause) => reject(new ApiError("BadRequest", "the request's body ended early", { cause })));
    request.on("aborted", () => reject(new ApiError("BadRequest", "the request's body ended early")));
  });
}
