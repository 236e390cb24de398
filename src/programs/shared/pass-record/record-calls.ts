import type { GrpcHandler } from "#features/cni";
import { describeAside } from "#kube/suspects";
import { CNI_SERVICE, CniRpcError, decodeCniArgs } from "#wire/cnirpc";
import type { PassRecording } from "./pass-record.ts";

/** Handlers of CNI calls, by path. */
export type RecordedCalls = Readonly<Record<string, GrpcHandler>>;

const RECORDED = ["Add", "Del", "Check"] as const;

/**
 * Makes ADD, DEL and CHECK passes of their pods. A call that ended the program three times is refused for a time, by the error of `refusal`: the runtime tries again.
 * Each kind of call has its own record, so that a pod that cannot be added can be deleted.
 */
export function recordCalls(
  calls: RecordedCalls,
  recording: PassRecording | undefined,
  refusal: (why: string) => Error,
): RecordedCalls {
  if (recording === undefined) return calls;
  const recorded = RECORDED.flatMap((method) => {
    const path = `/${CNI_SERVICE}/${method}`;
    const handler = calls[path];
    return handler === undefined ? [] : [[path, recordedCall(method, handler, recording, refusal)] as const];
  });
  return { ...calls, ...Object.fromEntries(recorded) };
}

function recordedCall(
  method: (typeof RECORDED)[number],
  handler: GrpcHandler,
  recording: PassRecording,
  refusal: (why: string) => Error,
): GrpcHandler {
  return async (request, options) => {
    const pod = podOf(request);
    if (pod === undefined) return await handler(request, options);
    const { key, uid, about } = pod;
    const work = { name: `call-${method.toLowerCase()}`, key, version: () => uid, about: () => about };
    const done = await recording.pass(work, async () => await handler(request, options), options);
    if ("value" in done) return done.value;
    throw refusal(`${method} is not done now: ${describeAside(done.aside)}`);
  };
}

/** The pod of a call, else its container. `undefined`: the call cannot be read, and its handler says why. */
function podOf(request: Uint8Array) {
  try {
    const { args, containerId } = decodeCniArgs(request);
    const { K8S_POD_NAMESPACE: namespace = "", K8S_POD_NAME: name = "", K8S_POD_UID: uid = "" } = args;
    if (name === "") return { key: containerId, uid, about: undefined };
    const about = { apiVersion: "v1", kind: "Pod", namespace, name, ...(uid === "" ? {} : { uid }) };
    return { key: `${namespace}/${name}`, uid, about };
  } catch (error) {
    if (error instanceof CniRpcError) return undefined;
    throw error;
  }
}
