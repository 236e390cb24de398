import type { EventSink } from "#features/service-health";
import type { EventRecorder } from "#kube/events";

/** Writes what people are to be told of as Events of the API (spec service-proxy 1.9). */
export function eventSink(events: EventRecorder, nodeName: string): EventSink {
  return ({ about, type, reason, note }) => {
    const regarding =
      about === "node"
        ? { apiVersion: "v1", kind: "Node", name: nodeName, uid: nodeName }
        : { apiVersion: "v1", kind: "Service", namespace: about.namespace, name: about.name };
    events.record({ regarding, type, reason, note });
  };
}
