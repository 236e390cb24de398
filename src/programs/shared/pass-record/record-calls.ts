import { describeAside } from "#kube/suspects";
import type { CniArgs, CniCaller } from "#wire/cnirpc";
import type { PassRecording } from "./pass-record.ts";

/**
 * Makes ADD, DEL and CHECK passes of their pods. A call that ended the program three times is refused for a time, by the error of `refusal`: the runtime tries again.
 * Each kind of call has its own record, so that a pod that cannot be added can be deleted.
 */
export function recordCalls(
  call: CniCaller,
  recording: PassRecording | undefined,
  refusal: (why: string) => Error,
): CniCaller {
  if (recording === undefined) return call;
  return async (request, options) => {
    const { method } = request;
    if (method === "GC" || method === "Status") return await call(request, options);
    const { key, uid, about } = podOf(request.args);
    const work = { name: `call-${method.toLowerCase()}`, key, version: () => uid, about: () => about };
    const done = await recording.pass(work, async () => await call(request, options), options);
    if ("value" in done) return done.value;
    throw refusal(`${method} is not done now: ${describeAside(done.aside)}`);
  };
}

/** The pod of a call, else its container. */
function podOf({ args, containerId }: CniArgs) {
  const { K8S_POD_NAMESPACE: namespace = "", K8S_POD_NAME: name = "", K8S_POD_UID: uid = "" } = args;
  if (name === "") return { key: containerId, uid, about: undefined };
  const about = { apiVersion: "v1", kind: "Pod", namespace, name, ...(uid === "" ? {} : { uid }) };
  return { key: `${namespace}/${name}`, uid, about };
}
