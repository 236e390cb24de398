import type { EventSink, HealthEvent } from "#features/service-health";
import type { EventRecorder, Regarding } from "#kube/events";

/** Writes Events to the API (docs/spec/service-proxy.md#1.9). */
export function eventSink(events: EventRecorder, nodeName: string): EventSink {
  return ({ about, type, reason, note }) => {
    events.record({ regarding: about === "node" ? ownNode(nodeName) : regardingOf(about), type, reason, note });
  };
}

const ownNode = (name: string): Regarding => ({ apiVersion: "v1", kind: "Node", name, uid: name });

const API_VERSIONS = {
  Service: "v1",
  Node: "v1",
  EndpointSlice: "discovery.k8s.io/v1",
  ServiceCIDR: "networking.k8s.io/v1",
} as const;

function regardingOf(about: Exclude<HealthEvent["about"], "node">): Regarding {
  const { kind = "Service", namespace, name } = about;
  return { apiVersion: API_VERSIONS[kind], kind, name, ...(namespace === "" ? {} : { namespace }) };
}
