import { request } from "node:https";
import { asObject, type Json, type JsonObject } from "../object/json.ts";

/** The address of a Service; `undefined`: it cannot be reached. */
export type ServiceResolver = (service: {
  readonly namespace: string;
  readonly name: string;
  readonly port: number;
}) => { readonly host: string; readonly port: number } | undefined;

/** The bound on answers, bytes (the real server's is the same as for requests). */
const MAX_ANSWER_BYTES = 3 * 1024 * 1024;

/** Posts a review over TLS, trusting `caBundle` under the name of the Service or the URL. Rejects with Error, for every kind of failure. */
export async function callWebhook(
  clientConfig: JsonObject,
  review: JsonObject,
  timeoutSeconds: number,
  resolve: ServiceResolver,
): Promise<Json> {
  const { caBundle } = clientConfig;
  const ca =
    typeof caBundle === "string" && caBundle !== "" ? Buffer.from(caBundle, "base64").toString("utf8") : undefined;
  const { url, at, servername } = target(clientConfig, resolve);
  url.searchParams.set("timeout", `${timeoutSeconds}s`);
  const body = JSON.stringify(review);
  const signal = AbortSignal.timeout(timeoutSeconds * 1000);
  const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body), host: url.host };
  return new Promise((settle, reject) => {
    const fail = (error: Error): void => {
      const why = signal.aborted ? "context deadline exceeded" : error.message;
      reject(new Error(`Post ${JSON.stringify(url.href)}: ${why}`, { cause: error }));
    };
    const path = `${url.pathname}${url.search}`;
    const init = {
      method: "POST",
      path,
      headers,
      agent: false,
      signal,
      servername,
      ...at,
      ...(ca === undefined ? {} : { ca }),
    };
    const call = request(init, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        text += chunk;
        if (text.length > MAX_ANSWER_BYTES) response.destroy(new Error("the answer is too long"));
      });
      response.on("error", fail);
      response.on("end", () => {
        if (response.statusCode !== 200)
          return fail(new Error(`the server answered ${response.statusCode}: ${text.slice(0, 200).trim()}`));
        try {
          settle(JSON.parse(text) as Json);
        } catch (error) {
          fail(error as Error);
        }
      });
    });
    call.on("error", fail);
    call.end(body);
  });
}

function target(clientConfig: JsonObject, resolve: ServiceResolver) {
  if (typeof clientConfig["url"] === "string") {
    const url = new URL(clientConfig["url"]);
    const at = { host: url.hostname.replace(/^\[|\]$/g, ""), port: Number(url.port || 443) };
    return { url, at, servername: url.hostname };
  }
  const { namespace, name, port = 443, path = "/" } = asObject(clientConfig["service"]);
  const service = { namespace: String(namespace), name: String(name), port: Number(port) };
  const servername = `${service.name}.${service.namespace}.svc`;
  const url = new URL(`https://${servername}:${service.port}${String(path)}`);
  const at = resolve(service);
  if (at === undefined) throw new Error(`service ${JSON.stringify(service.name)} not found`);
  return { url, at, servername };
}
