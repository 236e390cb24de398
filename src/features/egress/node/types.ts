import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import type { KubeObject, ResourceType, StoredMeta } from "#kube/client";
import type { Regarding } from "#kube/events";
import type { ObjectSteps } from "#kube/informer";
import type { Aside, PassRecord } from "#kube/suspects";
import type { AccessNamespace } from "../access/index.ts";

/** The Namespaces of the cluster as clients need them. The caller may keep more of each. */
export interface ClientNamespace extends AccessNamespace {
  readonly metadata: Pick<StoredMeta, "name" | "uid" | "resourceVersion">;
}

/** The pod of an ADD, whose interface is there. */
export interface ClientAdd {
  readonly pod: {
    readonly namespace: string;
    readonly name: string;
    readonly uid: string;
    readonly labels?: Readonly<Record<string, string>> | undefined;
    readonly annotations?: Readonly<Record<string, string>> | undefined;
  };
  /** The path of the pod's namespace. */
  readonly netns: string;
  readonly ifname: string;
  readonly ipv4: IpAddress | undefined;
  readonly ipv6: IpAddress | undefined;
}

/** The record of the objects that the program is at, which sets those aside that end it. */
export interface ClientRecording {
  readonly passes: PassRecord;
  /** Steps of an informer. `name`: that of its objects; default the plural of their type. */
  stepsFor(type: ResourceType<KubeObject>, name?: string): ObjectSteps;
  /** Writes the event of an object that is set aside, and the line of the log. */
  report(object: { readonly key: string; readonly about: Regarding | undefined }, aside: Aside, log: Logger): void;
}
