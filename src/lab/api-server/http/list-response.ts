import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { stringify } from "yaml";
import type { Listed } from "../handlers/list.ts";
import { fromStored } from "../handlers/object-rules.ts";
import type { JsonObject } from "../object/json.ts";
import { apiVersionOf, type KubeObject } from "../object/meta.ts";
import type { ResourceDef } from "../resources/types.ts";
import type { Entry } from "../store/entry.ts";
import { partialMetadata, toTable } from "../table/table.ts";
import type { Form } from "./accept.ts";
import { sendJson } from "./respond.ts";

/** The number of bytes in one write: large lists are sent in pieces, with backpressure. */
const PIECE_BYTES = 256 * 1024;

/** The bytes of an entry in one version: the stored bytes if it is the stored version. */
export function entryBytes(resource: ResourceDef, entry: Entry): Buffer {
  const shown = fromStored(resource, entry.object);
  return shown === entry.object ? entry.bytes : Buffer.from(JSON.stringify(shown));
}

/** Sends a list in the form that the client requested. */
export async function sendList(
  response: ServerResponse,
  resource: ResourceDef,
  listed: Listed,
  form: Form,
  nowMs: number,
): Promise<void> {
  const { entries, listMeta } = listed;
  const objects = (): KubeObject[] => entries.map((entry) => fromStored(resource, entry.object));
  switch (form.as) {
    case "table":
      return sendJson(response, 200, toTable(resource.columns, objects(), listMeta, form.table, nowMs));
    case "metadata": {
      const items = objects().map((object) => partialMetadata(object, form.version));
      return sendJson(response, 200, {
        kind: "PartialObjectMetadataList",
        apiVersion: `meta.k8s.io/${form.version}`,
        metadata: listMeta,
        // As kube-apiserver, whose list of no partial objects is Go's nil.
        items: items.length === 0 ? null : items,
      });
    }
    case "object": {
      const head = {
        kind: resource.listKind,
        apiVersion: apiVersionOf(resource.group, resource.version),
        metadata: listMeta,
      };
      if (!form.yaml) return sendItems(response, resource, head, entries);
      const text = stringify({ ...head, items: objects() });
      response.writeHead(200, { "content-type": "application/yaml" });
      response.end(text);
      return;
    }
  }
}

async function sendItems(
  response: ServerResponse,
  resource: ResourceDef,
  head: JsonObject,
  entries: readonly Entry[],
): Promise<void> {
  response.writeHead(200, { "content-type": "application/json" });
  let pieces: Buffer[] = [Buffer.from(`${JSON.stringify(head).slice(0, -1)},"items":[`)];
  let size = 0;
  const comma = Buffer.from(",");
  for (const [index, entry] of entries.entries()) {
    const bytes = entryBytes(resource, entry);
    if (index > 0) pieces.push(comma);
    pieces.push(bytes);
    size += bytes.length;
    if (size < PIECE_BYTES) continue;
    if (response.destroyed) return;
    if (!response.write(Buffer.concat(pieces))) await drained(response);
    pieces = [];
    size = 0;
  }
  pieces.push(Buffer.from("]}\n"));
  response.end(Buffer.concat(pieces));
}

/** Resolves when the response is writable or closed. */
export async function drained(response: ServerResponse): Promise<void> {
  if (response.destroyed || !response.writableNeedDrain) return;
  const controller = new AbortController();
  const { signal } = controller;
  await Promise.race([once(response, "drain", { signal }), once(response, "close", { signal })]).finally(() =>
    controller.abort(),
  );
}
