/** OpenAPI documents of all served types, made at the first request and after changes of the registry. */
import { createHash } from "node:crypto";
import type { JsonObject } from "../object/json.ts";
import { apiVersionOf } from "../object/meta.ts";
import type { Registry } from "../resources/registry.ts";
import { encodeDocument } from "./gnostic.ts";
import { documentV2 } from "./v2.ts";
import { documentV3 } from "./v3.ts";

/** The documents of one server. */
export class OpenApi {
  readonly #registry: Registry;
  readonly #made = new Map<string, Buffer>();
  #generation = -1;

  constructor(registry: Registry) {
    this.#registry = registry;
  }

  /** GET /openapi/v2 as JSON. */
  v2(): Buffer {
    return this.#once("v2", () => Buffer.from(JSON.stringify(documentV2(this.#registry))));
  }

  /** GET /openapi/v2 as gnostic's protobuf, which kubectl up to 1.26 requests. */
  v2Protobuf(): Buffer {
    return this.#once("v2 protobuf", () => encodeDocument(documentV2(this.#registry)));
  }

  /** GET /openapi/v3: the paths of the documents, with a hash of each. */
  v3Index(): JsonObject {
    const paths: JsonObject = {};
    for (const path of this.#groupPaths()) {
      const hash = createHash("sha256")
        .update(this.v3(path) ?? "")
        .digest("hex")
        .slice(0, 32)
        .toUpperCase();
      paths[path] = { serverRelativeURL: `/openapi/v3/${path}?hash=${hash}` };
    }
    return { paths };
  }

  /** GET /openapi/v3/api/v1 or /openapi/v3/apis/GROUP/VERSION. Undefined when nothing is served there. */
  v3(path: string): Buffer | undefined {
    if (!this.#groupPaths().has(path)) return undefined;
    return this.#once(`v3 ${path}`, () => {
      const [root, ...rest] = path.split("/");
      const [group, version] = root === "api" ? ["", rest[0] ?? ""] : [rest[0] ?? "", rest[1] ?? ""];
      return Buffer.from(JSON.stringify(documentV3(this.#registry, group, version)));
    });
  }

  #groupPaths(): Set<string> {
    return new Set(
      this.#registry
        .list()
        .map(({ group, version }) => `${group === "" ? "api" : "apis"}/${apiVersionOf(group, version)}`),
    );
  }

  #once(name: string, make: () => Buffer): Buffer {
    if (this.#generation !== this.#registry.generation) {
      this.#made.clear();
      this.#generation = this.#registry.generation;
    }
    const known = this.#made.get(name);
    if (known !== undefined) return known;
    const made = make();
    this.#made.set(name, made);
    return made;
  }
}
