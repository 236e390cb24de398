import type { Logger } from "#base/log";
import type { KubeObject } from "#kube/client";
import { fitShape, type Shape } from "#kube/shape";
import { SERVICE_SHAPE, SLICE_SHAPE } from "../track/index.ts";

/** Longest name that an API server accepts. */
const MAX_NAME = 253;

const TEXTS: Shape = { list: "string" };

const NODE_SHAPE: Shape = {
  fields: {
    metadata: { fields: { labels: { map: "string" }, deletionTimestamp: "string" }, required: [] },
    spec: { fields: { podCIDR: "string", podCIDRs: TEXTS, taints: { list: { fields: { key: "string" } } } } },
    status: { fields: { addresses: { list: { fields: { type: "string", address: "string" } } } } },
  },
  required: ["metadata"],
};

const RANGES_SHAPE: Shape = { fields: { spec: { fields: { cidrs: TEXTS } } } };

/** Required types of the fields that are read, by resource. */
export const SHAPES = {
  services: { kind: "Service", shape: SERVICE_SHAPE },
  endpointslices: { kind: "EndpointSlice", shape: SLICE_SHAPE },
  nodes: { kind: "Node", shape: NODE_SHAPE },
  servicecidrs: { kind: "ServiceCIDR", shape: RANGES_SHAPE },
} as const;

/** An Event about an object that cannot be read. */
export interface UnreadableEvent {
  readonly about: {
    readonly kind: (typeof SHAPES)[keyof typeof SHAPES]["kind"];
    readonly namespace: string;
    readonly name: string;
  };
  readonly type: "Warning";
  readonly reason: "UnreadableObject";
  readonly note: string;
}

/** Takes Events. Must not throw. */
export type UnreadableEventSink = (event: UnreadableEvent) => void;

/** An object that cannot be read, and the reason. It counts as absent. */
export interface Unreadable {
  readonly metadata: KubeObject["metadata"];
  readonly fault: string;
}

/** Makes an informer's transform. The transform returns the result of `read`, or the reason why the object cannot be read. */
export function readable<T extends KubeObject, U extends { readonly metadata: unknown }>(
  resource: keyof typeof SHAPES,
  read: (object: T) => U,
): (object: T) => U | Unreadable {
  const { shape } = SHAPES[resource];
  return (object) => {
    const fault = fitShape(object, shape);
    return fault === undefined ? read(object) : { metadata: bare(object), fault };
  };
}

/** The metadata that identifies an object and its version. */
function bare({ metadata: { name, namespace, uid, resourceVersion } }: KubeObject): KubeObject["metadata"] {
  return { name, uid, resourceVersion, ...(typeof namespace === "string" ? { namespace } : {}) };
}

/** The object; `undefined` if it cannot be read. */
export function ifReadable<U extends object>(object: U | Unreadable): U | undefined {
  return "fault" in object ? undefined : (object as U);
}

/** Reports each object that cannot be read: once, and again when its fault changes. */
export class UnreadableReporter {
  readonly #log: Logger;
  readonly #onEvent: UnreadableEventSink;
  /** Reported faults, by kind and key, of objects that the API server has. */
  readonly #reported = new Map<string, string>();

  constructor(deps: { readonly log: Logger; readonly onEvent: UnreadableEventSink }) {
    this.#log = deps.log;
    this.#onEvent = deps.onEvent;
  }

  /** Reports a fault of `object`, the informer's object. `undefined`: the object was deleted. */
  report(resource: keyof typeof SHAPES, key: string, object: object | undefined): void {
    const { kind } = SHAPES[resource];
    const id = `${kind} ${key}`;
    if (object === undefined || !("fault" in object) || typeof object.fault !== "string") {
      this.#reported.delete(id);
      return;
    }
    const { fault } = object;
    if (this.#reported.get(id) === fault) return;
    this.#reported.set(id, fault);
    const [namespace = "", name = ""] = key.split("/", 2).map((part) => part.slice(0, MAX_NAME));
    const fields = { kind, object: `${namespace}/${name}`, why: fault };
    this.#log.error("an object of the API server is malformed and is ignored", fields);
    const note = `this object is malformed and is ignored: ${fault}`;
    this.#onEvent({ about: { kind, namespace, name }, type: "Warning", reason: "UnreadableObject", note });
  }
}
