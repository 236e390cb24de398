/**
 * Admission webhooks called as an API server calls them: over TLS, under the name of their Service, with AdmissionReviews.
 *
 * Owns: {@link review}, {@link reviewOf}. Does not know: the rules, the programs.
 */
import { request } from "node:https";
import { until } from "#test/lab";

/** The answer to a review. */
export interface Answer {
  readonly apiVersion: string;
  readonly response: {
    readonly allowed: boolean;
    readonly patch?: string;
    readonly warnings?: readonly string[];
    readonly status?: { readonly reason: string; readonly message: string };
  };
}

/** Calls a webhook on loopback, trusting `ca`, under the name `servername`. */
export function review(
  to: { readonly port: number; readonly ca: string; readonly servername: string; readonly path: string },
  body: object,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const call = request({ host: "127.0.0.1", method: "POST", agent: false, ...to }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        text += chunk;
      });
      response.on("end", () => {
        try {
          resolve(JSON.parse(text));
        } catch (error) {
          reject(error);
        }
      });
    });
    call.on("error", reject);
    call.end(JSON.stringify(body));
  });
}

/** A review of a new object of Coil, or with `oldObject` of a change. */
export function reviewOf(
  version: "v1" | "v1beta1",
  { kind, plural }: { readonly kind: string; readonly plural: string },
  object: { readonly metadata: { readonly name: string; readonly namespace?: string } },
  oldObject?: object,
): object {
  const { name, namespace } = object.metadata;
  return {
    apiVersion: `admission.k8s.io/${version}`,
    kind: "AdmissionReview",
    request: {
      uid: "705ab4f5",
      kind: { group: "coil.cybozu.com", version: "v2", kind },
      resource: { group: "coil.cybozu.com", version: "v2", resource: plural },
      name,
      ...(namespace === undefined ? {} : { namespace }),
      operation: oldObject === undefined ? "CREATE" : "UPDATE",
      userInfo: { username: "admin" },
      object,
      oldObject: oldObject ?? null,
      dryRun: false,
    },
  };
}

/** The port in the first log line of a program, or of its part, that tells where webhooks listen. */
export async function webhookPort(program: { said(): string }, logger = "webhook"): Promise<number> {
  const line = new RegExp(`"logger":"[^"]*\\.${logger}","port":(\\d+),"msg":"webhooks listen"`);
  const found = (): string | undefined => line.exec(program.said())?.[1];
  await until("the webhooks listen", () => found() !== undefined, { seen: program.said });
  return Number(found());
}
