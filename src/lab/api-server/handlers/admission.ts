import type { UserInfo } from "../auth/auth.ts";
import type { KubeObject } from "../object/meta.ts";

/** A write that is about to be committed. */
export interface AdmissionRequest {
  readonly operation: "CREATE" | "UPDATE" | "DELETE";
  readonly group: string;
  readonly version: string;
  readonly resource: string;
  readonly subresource: string;
  readonly namespace: string;
  /** Empty where a collection is deleted. */
  readonly name: string;
  readonly user: UserInfo;
  readonly dryRun: boolean;
  /** The new state, in the version of the request; undefined on DELETE. A plug-in may return another. */
  readonly object: KubeObject | undefined;
  readonly old: KubeObject | undefined;
  /** Sends a warning to the client. */
  readonly warn: (text: string) => void;
}

/**
 * One link of the admission chain (webhooks are one). Returns a changed object, or undefined for no change;
 * refuses by throwing ApiError. May be called again for the same request when the object changed meanwhile.
 */
export interface AdmissionPlugin {
  readonly name: string;
  admit(request: AdmissionRequest): Promise<KubeObject | undefined> | KubeObject | undefined;
}

/** Runs the chain. Waits only for plug-ins that answer with a promise. */
export async function runAdmission(
  plugins: readonly AdmissionPlugin[],
  request: AdmissionRequest,
): Promise<KubeObject | undefined> {
  let object = request.object;
  for (const plugin of plugins) {
    const answer = plugin.admit({ ...request, object });
    object = (answer instanceof Promise ? await answer : answer) ?? object;
  }
  return object;
}
